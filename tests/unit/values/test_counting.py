"""Counts in words."""

import pytest

from wheelsched.values.counting import counted


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 shards"), (1, "1 shard"), (1_234, "1,234 shards")]
)
def test_a_noun_follows_its_number(number: int, words: str) -> None:
    assert counted(number, "shard") == words
