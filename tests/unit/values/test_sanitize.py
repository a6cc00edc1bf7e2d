import pytest

from wheelsched.values.sanitize import MAX_STATUS, sanitize_status, sanitize_text


@pytest.mark.parametrize(
    ("text", "kept"),
    [(None, None), ("", ""), ("naïve 😀", "naïve 😀"), ("a\0b", "a?b"), ("a\ud800", "a?")],
)
def test_text_is_kept_except_what_postgres_cannot_store(text: str | None, kept: str | None) -> None:
    assert sanitize_text(text) == kept


@pytest.mark.parametrize(
    ("status", "kept"),
    [(None, None), (204, 204), (MAX_STATUS, MAX_STATUS), (MAX_STATUS + 1, None), (-1, None)],
)
def test_a_status_is_kept_if_it_is_one(status: int | None, kept: int | None) -> None:
    assert sanitize_status(status) == kept
