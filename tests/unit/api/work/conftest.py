"""The API with queues in memory."""

from tests.contract.work.conftest import scheduler

__all__ = ["scheduler"]
