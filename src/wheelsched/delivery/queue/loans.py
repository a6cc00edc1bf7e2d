"""Decides how the credits of a pool are lent to the shards.

Invariant: no more is lent than the pool has, and a recall asks for no more than was lent. Runs that
wait get credits before any shard keeps some in reserve.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Loan:
    """The credits of one pool that one shard has borrowed."""

    __slots__ = ("is_void", "lent", "recalling", "waiting")

    def __init__(self) -> None:
        self.lent = 0  # including what is being recalled
        self.recalling = 0
        self.waiting = 0  # runs at the shard without a credit, as far as is known
        self.is_void = False  # its desk is lost

    @property
    def missing(self) -> int:
        """How many more credits the shard could use now."""
        return max(0, self.waiting - (self.lent - self.recalling))

    @property
    def spare(self) -> int:
        """How many credits the shard does not need now."""
        return max(0, self.lent - self.recalling - self.waiting)


class Moves(NamedTuple):
    """Credits to lend to each shard, and to recall from each, in the order of the loans."""

    lend: list[int]
    recall: list[int]


def spread(total: int, loans: Sequence[Loan], turn: int) -> Moves:
    """How to spread `total` credits. `turn` says which shard is the first among equals."""
    size = len(loans)
    moves = Moves([0] * size, [0] * size)
    free = total - sum(loan.lent for loan in loans)
    recalling = sum(loan.recalling for loan in loans)
    if free < 0:
        _recall(moves, loans, -free - recalling, is_needed=True)
        return moves
    order = [(turn + position) % size for position in range(size)]
    unmet = {place: loans[place].missing for place in order if loans[place].missing}
    free = _fill(moves, unmet, free)
    if unmet:
        _recall(moves, loans, sum(unmet.values()) - recalling, is_needed=False)
    elif free:
        _level(moves, loans, free, order)
    return moves


def next_turn(moves: Moves, turn: int) -> int:
    """The turn after these moves: it is that of the shard after the last one that got credits."""
    size = len(moves.lend)
    served = [place for place in range(size) if moves.lend[(turn + place) % size]]
    return (turn + served[-1] + 1) % size if served else turn


def level_again(total: int, loans: Sequence[Loan]) -> list[int]:
    """What to recall from each shard so that all have an equal part again; no run waits."""
    if not loans or any(loan.recalling or loan.waiting for loan in loans):
        return [0] * len(loans)
    most = -(-total // len(loans))
    if min(loan.lent for loan in loans) >= total // len(loans):
        return [0] * len(loans)
    return [max(0, loan.lent - most) for loan in loans]


def _fill(moves: Moves, unmet: dict[int, int], free: int) -> int:
    """Gives free credits to the shards where runs wait, in equal parts. Returns what is left."""
    while free and unmet:
        part = max(1, free // len(unmet))
        for place in list(unmet):
            given = min(part, unmet[place], free)
            moves.lend[place] += given
            free -= given
            unmet[place] -= given
            if not unmet[place]:
                del unmet[place]
    return free


def _level(moves: Moves, loans: Sequence[Loan], free: int, order: Sequence[int]) -> None:
    """Gives free credits to the shards that have the fewest."""
    level = -(-(sum(loan.lent for loan in loans) + sum(moves.lend) + free) // len(loans))
    for place in sorted(order, key=lambda place: loans[place].lent + moves.lend[place]):
        given = min(free, max(0, level - loans[place].lent - moves.lend[place]))
        moves.lend[place] += given
        free -= given
    # The level is rounded up, and shards above it take no part: some may be left.
    if free:
        moves.lend[order[0]] += free


def _recall(moves: Moves, loans: Sequence[Loan], count: int, *, is_needed: bool) -> None:
    """Recalls credits, first from the shards that have the most to spare.

    `is_needed`: workers have withdrawn them, so that shards give up what they could use, too.
    """
    by_spare = sorted(range(len(loans)), key=lambda place: -loans[place].spare)
    for place in by_spare:
        asked = min(count, loans[place].spare)
        if asked > 0:
            moves.recall[place] += asked
            count -= asked
    if not is_needed:
        return
    for place in by_spare:
        loan = loans[place]
        asked = min(count, loan.lent - loan.recalling - moves.recall[place])
        if asked > 0:
            moves.recall[place] += asked
            count -= asked
