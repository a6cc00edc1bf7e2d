"""The optional extras of the package.

The plain package has the dependencies of `Worker`, `Client` and `Wheel` only.
"""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Final

from wheelsched.errors import MissingExtra

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "server": (
        *("asyncpg", "croniter", "httptools", "prometheus_client", "rich"),
        *("structlog", "typer", "yaml"),
    ),
    "grpc": ("grpc", "grpc_health", "grpc_reflection"),
}


@cache
def require(extra: str) -> None:
    """Raises `MissingExtra` unless the extra is installed; modules that need it call this first."""
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        raise MissingExtra(
            f"{missing[0]} is not installed; install it with `pip install 'wheelsched[{extra}]'`"
        )
