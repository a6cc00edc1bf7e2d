"""One stack for the tests of a module that only use it."""

from collections.abc import Iterator

import pytest
from tests.stack import RunningStack, running_stack


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    with running_stack() as running:
        yield running
