"""Durations in words."""

import pytest

from wheelsched.values.duration_words import to_units


@pytest.mark.parametrize(
    ("words", "units"),
    [
        ("5 minutes", "5m"),
        (" 5 Minutes ", "5m"),
        ("5min", "5m"),
        ("1 hour 30 minutes", "1h30m"),
        ("1 hour and 30 mins", "1h30m"),
        ("2 days, 4 hrs", "2d4h"),
        ("an hour", "1h"),
        ("a week", "1w"),
        ("hour", "1h"),
        ("second", "1s"),
        ("250 milliseconds", "250ms"),
        ("1h 30m", "1h30m"),
        ("90s", "90s"),
        ("1500us", "1500us"),
    ],
)
def test_words_become_units(words: str, units: str) -> None:
    assert to_units(words) == units


@pytest.mark.parametrize("text", ["day", "5 parsecs", "minutes 5", "half an hour", "", "and"])
def test_other_text_is_left_to_parse_duration(text: str) -> None:
    assert to_units(text) == text.replace(" ", "")
