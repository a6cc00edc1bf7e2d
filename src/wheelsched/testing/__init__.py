"""What our tests and our users' tests run on instead of the real world."""

from wheelsched.testing.clock import VirtualClock
from wheelsched.testing.dispatcher import MemoryDispatcher
from wheelsched.testing.memory import MemoryStore

__all__ = ["MemoryDispatcher", "MemoryStore", "VirtualClock"]
