"""For tests, ours and our users': a store in memory that behaves like the one on Postgres."""

from wheelsched.testing.memory import MemoryStore

__all__ = ["MemoryStore"]
