"""The timing wheel on a running asyncio loop: callbacks and batches at their time, never early."""

import logging

from wheelsched.aio._callbacks import Timer
from wheelsched.aio.timeout import Timeout
from wheelsched.aio.wheel import AsyncWheel, AsyncWheelStats, Pending

__all__ = ["AsyncWheel", "AsyncWheelStats", "Pending", "Timeout", "Timer"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
