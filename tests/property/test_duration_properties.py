from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.errors import InvalidDuration
from wheelsched.values.duration import MAX_DURATION_US, format_duration, parse_duration


@given(st.integers(0, MAX_DURATION_US))
def test_a_formatted_value_is_parsed_back(duration_us: int) -> None:
    assert parse_duration(format_duration(duration_us)) == duration_us


@given(st.text() | st.text("0123456789wdhmsu", max_size=12))
def test_any_text_is_a_duration_or_a_refusal(text: str) -> None:
    with suppress(InvalidDuration):
        assert 0 <= parse_duration(text) <= MAX_DURATION_US
