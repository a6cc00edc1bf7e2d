import pytest

from wheelsched.api.changes import LOOKS, look_and_change
from wheelsched.errors import JobChanged, JobNotFound, StoreError


class Overtaken:
    """A change that comes too late so many times, and then is made."""

    def __init__(self, times: int, error: type[StoreError] = JobChanged) -> None:
        self._times = times
        self._error = error
        self.looks = 0

    async def __call__(self) -> str:
        self.looks += 1
        if self.looks <= self._times:
            raise self._error
        return "made"


async def test_a_change_that_was_overtaken_begins_again() -> None:
    change = Overtaken(LOOKS - 1)
    assert await look_and_change(change, JobChanged) == "made"
    assert change.looks == LOOKS == 5


@pytest.mark.parametrize(
    ("error", "looks"), [(JobChanged, LOOKS), (JobNotFound, 1)], ids=["overtaken", "not found"]
)
async def test_nobody_looks_for_ever(error: type[StoreError], looks: int) -> None:
    change = Overtaken(100, error)
    with pytest.raises(error):
        await look_and_change(change, JobChanged)
    assert change.looks == looks
