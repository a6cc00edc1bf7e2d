"""What our tests and our users' tests run on instead of the real world."""

from wheelsched.testing.clock import VirtualClock

__all__ = ["VirtualClock"]
