"""Formats lists of numbers: `1, 2 and 5`, `Monday through Friday`, `every 2nd hour`.

Invariant: different sets of values have different descriptions.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

# Fewer values are listed one by one, even if they are evenly spaced.
LONG: Final = 4


def values_of(mask: int, allowed: range) -> list[int]:
    """The values whose bit is set, in order."""
    return [value for value in allowed if mask >> value & 1]


def distance_of(values: Iterable[int]) -> int | None:
    """The distance between two neighbours; None if it varies, or for a single value."""
    distances = {later - earlier for earlier, later in pairwise(values)}
    return distances.pop() if len(distances) == 1 else None


def joined(texts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def listed(values: Iterable[int], name: Callable[[int], str], further: Sequence[str] = ()) -> str:
    """List values by name, with three or more in a row as `first through last`."""
    rows: list[list[int]] = []
    for value in values:
        if rows and rows[-1][-1] == value - 1:
            rows[-1].append(value)
        else:
            rows.append([value])
    texts: list[str] = []
    for row in rows:
        if len(row) > 2:
            texts.append(f"{name(row[0])} through {name(row[-1])}")
        else:
            texts += map(name, row)
    return joined([*texts, *further])


def each_of(values: Sequence[int], unit: str, name: Callable[[int], str]) -> str:
    """`hour 09`, `hours 09 and 17`, or `every 2nd hour from 00 to 22`."""
    distance = distance_of(values)
    if len(values) >= LONG and distance is not None and distance > 1:
        return f"every {ordinal(distance)} {unit} from {name(values[0])} to {name(values[-1])}"
    return f"{unit}{'s' if len(values) > 1 else ''} {listed(values, name)}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
