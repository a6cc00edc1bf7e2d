import pytest

from wheelsched.core.storable import MOST_STATUS, storable_status, storable_text


@pytest.mark.parametrize(
    ("text", "kept"),
    [(None, None), ("", ""), ("naïve 😀", "naïve 😀"), ("a\0b", "a?b"), ("a\ud800", "a?")],
)
def test_text_is_kept_but_for_what_no_database_keeps(text: str | None, kept: str | None) -> None:
    assert storable_text(text) == kept


@pytest.mark.parametrize(
    ("status", "kept"),
    [(None, None), (204, 204), (MOST_STATUS, MOST_STATUS), (MOST_STATUS + 1, None), (-1, None)],
)
def test_a_status_is_kept_if_it_is_one(status: int | None, kept: int | None) -> None:
    assert storable_status(status) == kept
