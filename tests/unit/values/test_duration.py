import pytest

from wheelsched.errors import InvalidDuration
from wheelsched.values.duration import (
    DAY,
    HOUR,
    MAX_DURATION_US,
    MILLISECOND,
    MINUTE,
    SECOND,
    WEEK,
    format_duration,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("60s", 60 * SECOND),
        ("1h", HOUR),
        ("5m", 5 * MINUTE),
        ("1h30m", HOUR + 30 * MINUTE),
        ("90m", HOUR + 30 * MINUTE),
        ("250ms", 250 * MILLISECOND),
        ("1s1us", SECOND + 1),
        ("1m1ms", MINUTE + MILLISECOND),
        ("2w3d", 2 * WEEK + 3 * DAY),
        ("0s", 0),
        ("007s", 7 * SECOND),
    ],
)
def test_a_duration_is_read(text: str, duration_us: int) -> None:
    assert parse_duration(text) == duration_us


@pytest.mark.parametrize(
    "text",
    ["", " ", "60", "s", "+5s", "1.5h", "1h 30m", " 1h", "30m1h", "5m5m", "5 m", "5M",
     "5min", "1h30", "٥s", "1e3s", "5m\n", "\x00", "9" * 10_000 + "s"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidDuration, match="is not a valid duration; write whole numbers"):
        parse_duration(text)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(InvalidDuration, match="'-5s' is negative; the shortest duration is '0s'"):
        parse_duration("-5s")


def test_a_duration_beyond_ten_thousand_years_is_refused() -> None:
    with pytest.raises(InvalidDuration, match="too long"):
        parse_duration("999999999w")


def test_the_error_points_at_the_field() -> None:
    with pytest.raises(InvalidDuration) as caught:
        parse_duration("soon", pointer="/misfire/grace")
    assert caught.value.pointer == "/misfire/grace"


def test_the_error_quotes_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(InvalidDuration) as caught:
        parse_duration("x" * 1_000_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (0, "0s"),
        (1, "1us"),
        (MINUTE, "1m"),
        (HOUR + 30 * MINUTE, "1h30m"),
        (DAY + 1, "1d1us"),
        (1_500 * MILLISECOND, "1s500ms"),
    ],
)
def test_a_duration_is_written_shortest(duration_us: int, text: str) -> None:
    assert format_duration(duration_us) == text


def test_the_longest_duration_can_be_written_and_read() -> None:
    assert parse_duration(format_duration(MAX_DURATION_US)) == MAX_DURATION_US


def test_a_negative_duration_has_no_spelling() -> None:
    with pytest.raises(InvalidDuration, match="negative"):
        format_duration(-1)
