"""In-memory replacements for the clock, the store and the dispatcher, for tests."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wheelsched.testing.clock import VirtualClock
from wheelsched.testing.dispatcher import MemoryDispatcher

if TYPE_CHECKING:
    from wheelsched.testing.memory import MemoryStore

__all__ = ["MemoryDispatcher", "MemoryStore", "VirtualClock"]

_MODULES = {
    "MemoryStore": "wheelsched.testing.memory",
    "testing_scheduler": "wheelsched.scheduler.fixtures",  # a fixture of pytest
}


def __getattr__(name: str) -> Any:
    """Imports names that need the extra `server` on first use: the clock does not need it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
