from contextlib import suppress
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.idempotency import MAX_LENGTH, check_template, compile_template
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY
from wheelsched.errors import InvalidIdempotencyKey

instants = st.integers(0, 7_258_118_400_000_000 - 1)  # 1970 up to 2200
zones = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia"])
placeholders = st.sampled_from(
    ["job_id", "scheduled_at", "scheduled_at_unix", "date", "week", "month", "hour"]
)
templates = st.lists(
    placeholders.map("{{{{{}}}}}".format) | st.text("abc:-_/", min_size=1, max_size=5),
    min_size=1,
    max_size=8,
).map("".join)


@given(templates, st.uuids(), instants, zones)
def test_what_is_accepted_renders_a_key_that_a_header_carries(
    template: str, job_id: UUID, scheduled_us: int, timezone: str
) -> None:
    with suppress(InvalidIdempotencyKey):
        key = compile_template(template).render(job_id, scheduled_us, timezone)
        assert 1 <= len(key) <= MAX_LENGTH
        assert all("!" <= character <= "~" and character != "." for character in key)


@given(st.uuids(), instants, instants, zones)
def test_the_default_key_is_different_for_every_run(
    job_id: UUID, scheduled_us: int, other_us: int, timezone: str
) -> None:
    template = compile_template(DEFAULT_IDEMPOTENCY_KEY)
    key = template.render(job_id, scheduled_us, timezone)
    other = template.render(job_id, other_us, timezone)
    assert (key == other) == (scheduled_us == other_us)


@given(st.text() | st.text("{}job_id ", max_size=30), st.booleans())
def test_any_text_is_a_template_or_a_refusal(text: str, is_recurring: bool) -> None:
    with suppress(InvalidIdempotencyKey):
        check_template(text, is_recurring=is_recurring)
