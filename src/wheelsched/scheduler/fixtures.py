"""A fixture for pytest: `from wheelsched.testing import testing_scheduler` in `conftest.py`."""

import pytest

from wheelsched.scheduler.scheduler import Scheduler
from wheelsched.scheduler.testing import TestingScheduler


@pytest.fixture
def testing_scheduler() -> TestingScheduler:
    """A scheduler in virtual time. It starts with `async with testing_scheduler:`."""
    return Scheduler.testing()
