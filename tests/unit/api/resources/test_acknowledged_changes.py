import pytest

from wheelsched.api.resources.optimistic_retry import ATTEMPTS, retry_on_conflict
from wheelsched.errors import JobChanged, JobNotFound, StoreError


class Overtaken:
    """A change that conflicts a number of times and then succeeds."""

    def __init__(self, times: int, error: type[StoreError] = JobChanged) -> None:
        self._times = times
        self._error = error
        self.looks = 0

    async def __call__(self) -> str:
        self.looks += 1
        if self.looks <= self._times:
            raise self._error
        return "made"


async def test_a_conflicting_change_is_retried() -> None:
    change = Overtaken(ATTEMPTS - 1)
    assert await retry_on_conflict(change, JobChanged) == "made"
    assert change.looks == ATTEMPTS == 5


@pytest.mark.parametrize(
    ("error", "looks"), [(JobChanged, ATTEMPTS), (JobNotFound, 1)], ids=["overtaken", "not found"]
)
async def test_the_number_of_retries_is_limited(error: type[StoreError], looks: int) -> None:
    change = Overtaken(100, error)
    with pytest.raises(error):
        await retry_on_conflict(change, JobChanged)
    assert change.looks == looks
