from uuid import uuid4

from wheelsched.core.model import RunKey
from wheelsched.shard.ownership.ownership import MOST_ENDED, Past


def test_only_what_had_ended_before_the_doubt_counts_and_once() -> None:
    past = Past()
    before, after, other = (RunKey(uuid4(), 1) for _ in range(3))
    past.ended([before])
    assert past.count_repeated([before]) == 0
    past.doubt()
    past.ended([after])
    assert past.count_repeated([before, after, other]) == 1
    assert past.count_repeated([before, after, other]) == 0


def test_it_is_bounded_and_remembers_the_latest() -> None:
    past = Past()
    keys = [RunKey(uuid4(), number) for number in range(3 * MOST_ENDED)]
    for key in keys:
        past.ended([key])
    past.doubt()
    repeated = past.count_repeated(keys)
    assert MOST_ENDED // 2 <= repeated <= MOST_ENDED + 1
    assert past.count_repeated([keys[0]]) == 0


def test_epochs_only_grow() -> None:
    past = Past()
    past.gained(7, 5)
    past.gained(7, 3)
    assert past.epochs == {7: 5}
