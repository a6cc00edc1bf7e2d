"""A distributed job scheduler that fires on time, and the timing wheel it is built on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wheelsched._wheel import KeyedWheel, ObjectWheel, UUIDWheel, Wheel, WheelStats
    from wheelsched.scheduler import Scheduler as Scheduler

    __version__: str

__all__ = ["KeyedWheel", "ObjectWheel", "UUIDWheel", "Wheel", "WheelStats"]


def __getattr__(name: str) -> Any:
    """Import names on first use: `import wheelsched` stays cheap."""
    if name == "__version__":  # it stands in pyproject.toml, and so in the metadata
        return import_module("importlib.metadata").version("wheelsched")
    if name == "Scheduler":  # not in `__all__`: it needs the extra `server`
        return import_module("wheelsched.scheduler").Scheduler
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("wheelsched._wheel"), name)
