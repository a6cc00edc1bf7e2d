"""The armed runs of one job that wait for their turn, in its order.

Invariant: on-time runs stand before those of the late lane, each by due time. A job may have a
hundred thousand of them, so every operation looks at a small part of the line only: it is cut into
blocks, and what is added or removed moves the runs of one block.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from wheelsched.core.model import Lane
from wheelsched.shard.armed import ArmedRun

BLOCK = 512  # runs; a block of twice as many is cut in two


class WaitingLine:
    """A sorted list of runs. The lane of a run does not change while it stands in line."""

    def __init__(self) -> None:
        self._blocks: list[list[ArmedRun]] = []  # none of them is empty

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[ArmedRun]:
        return chain.from_iterable(self._blocks)

    @property
    def first(self) -> ArmedRun:
        """The run whose turn it is next."""
        return self._blocks[0][0]

    def add(self, run: ArmedRun) -> None:
        if not self._blocks:
            self._blocks.append([run])
            return
        number, place = self._locate(run)
        if number == len(self._blocks):  # behind all others
            number, place = number - 1, len(self._blocks[-1])
        block = self._blocks[number]
        block.insert(place, run)
        if len(block) >= 2 * BLOCK:
            self._blocks[number : number + 1] = [block[:BLOCK], block[BLOCK:]]

    def discard(self, run: ArmedRun) -> bool:
        """Takes a run out of the line; False when it is not in it."""
        number, place = self._locate(run)
        if number == len(self._blocks) or self._blocks[number][place] is not run:
            return False
        block = self._blocks[number]
        del block[place]
        if not block:
            del self._blocks[number]
        return True

    def ahead_of(self, run: ArmedRun) -> int:
        """How many runs stand in front of this one, which may be in line or not."""
        number, place = self._locate(run)
        return sum(map(len, self._blocks[:number])) + place

    def _locate(self, run: ArmedRun) -> tuple[int, int]:
        """The block and the place in it of the first run that does not come before this one."""
        turn = _turn(run)
        number = bisect_left(self._blocks, turn, key=_last_turn)
        if number == len(self._blocks):
            return number, 0
        return number, bisect_left(self._blocks[number], turn, key=_turn)


def _turn(run: ArmedRun) -> tuple[bool, int]:
    return run.lane is Lane.LATE, run.key.due_us


def _last_turn(block: list[ArmedRun]) -> tuple[bool, int]:
    return _turn(block[-1])
