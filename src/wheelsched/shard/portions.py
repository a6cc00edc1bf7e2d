"""Portions: how a stage goes through everything it knows without holding up the rest.

Invariant: the loop turns after every portion. What is gone through is what was there at the
beginning: whoever takes a portion asks what has become of it meanwhile.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

from wheelsched.ports import Clock

Item = TypeVar("Item")

PORTION = 500  # of what takes some microseconds each


async def in_portions(
    clock: Clock, items: Iterable[Item], portion: int = PORTION
) -> AsyncIterator[Sequence[Item]]:
    """All items of this moment, a portion in each turn of the loop."""
    everything = tuple(items)
    for start in range(0, len(everything), portion):
        yield everything[start : start + portion]
        await clock.sleep(0)
