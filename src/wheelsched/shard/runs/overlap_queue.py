"""The runs of one job that wait for earlier runs, in the order in which they go.

Invariant: on-time runs come before late runs, each by due time. A job may have a hundred thousand
waiting runs, so the queue is divided into blocks, and adding or removing a run moves the runs of
one block only.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from wheelsched.core.model import Lane
from wheelsched.shard.runs.armed_run import ArmedRun

BLOCK = 512  # runs; a block of twice that size is split


class OverlapQueue:
    """A sorted list of runs. The lane of a run does not change while it waits."""

    def __init__(self) -> None:
        self._blocks: list[list[ArmedRun]] = []  # none of them is empty

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[ArmedRun]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> ArmedRun:
        """The run that goes next."""
        return self._blocks[0][0]

    def add(self, run: ArmedRun) -> None:
        if not self._blocks:
            self._blocks.append([run])
            return
        number, place = self._locate(run)
        if number == len(self._blocks):  # after all others
            number, place = number - 1, len(self._blocks[-1])
        block = self._blocks[number]
        block.insert(place, run)
        if len(block) >= 2 * BLOCK:
            self._blocks[number : number + 1] = [block[:BLOCK], block[BLOCK:]]

    def discard(self, run: ArmedRun) -> bool:
        """Removes a run; False if it is not in the queue."""
        number, place = self._locate(run)
        if number == len(self._blocks) or self._blocks[number][place] is not run:
            return False
        block = self._blocks[number]
        del block[place]
        if not block:
            del self._blocks[number]
        return True

    def ahead_of(self, run: ArmedRun) -> int:
        """The number of runs ahead of this one, whether or not it is in the queue."""
        number, place = self._locate(run)
        return sum(map(len, self._blocks[:number])) + place

    def _locate(self, run: ArmedRun) -> tuple[int, int]:
        """The block, and the place in it, of the first run that is not ahead of this one."""
        order = _order(run)
        number = bisect_left(self._blocks, order, key=_last_order)
        if number == len(self._blocks):
            return number, 0
        return number, bisect_left(self._blocks[number], order, key=_order)


def _order(run: ArmedRun) -> tuple[bool, int]:
    return run.lane is Lane.LATE, run.key.due_us


def _last_order(block: list[ArmedRun]) -> tuple[bool, int]:
    return _order(block[-1])
