"""The timing wheel on an asyncio loop: callbacks and batches on time, never early."""

import logging

from wheelsched.aio._callbacks import Timer
from wheelsched.aio.timeout import Timeout
from wheelsched.aio.wheel import AsyncWheel, AsyncWheelStats, Pending

__all__ = ["AsyncWheel", "AsyncWheelStats", "Pending", "Timeout", "Timer"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
