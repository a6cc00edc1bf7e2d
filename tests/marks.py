"""Which cases of a test `make test` runs, and which are left to `make proof`."""

from collections.abc import Iterable

import pytest


def first_cases(count: int, values: Iterable[object]) -> list[object]:
    """Cases for `parametrize`, of which all but the first `count` are marked as `proof`."""
    return [
        value if number < count else pytest.param(value, marks=pytest.mark.proof)
        for number, value in enumerate(values)
    ]
