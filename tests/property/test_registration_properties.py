"""Whatever is written, registration accepts it or points at what is wrong, and nothing else."""

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wheelsched.errors import InvalidDocument, InvalidField, ScheduleNeverFires
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.explain import explain
from wheelsched.schedule.parse import first_due_us, parse
from wheelsched.schedule.spec import Spec

NOW = 1_794_800_000 * 1_000_000
JOB = UUID(int=1)

RULE_PARTS = [
    "FREQ",
    "INTERVAL",
    "COUNT",
    "UNTIL",
    "WKST",
    "BYDAY",
    "BYMONTH",
    "BYMONTHDAY",
    "BYYEARDAY",
    "BYWEEKNO",
    "BYHOUR",
    "BYMINUTE",
    "BYSECOND",
    "BYSETPOS",
    "BYEASTER",
]

cron_like = st.lists(
    st.text("0123456789*/-,?LWH#()@RMONSUJAFEB", min_size=1, max_size=6), min_size=4, max_size=7
).map(" ".join)
rrule_like = st.lists(
    st.tuples(
        st.sampled_from(RULE_PARTS),
        st.one_of(
            st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY", "HOURLY", "SECONDLY", "MO"]),
            st.integers(-400, 400).map(str),
            st.text("0123456789,-+TZMOSU", max_size=16),
        ),
    ).map("=".join),
    min_size=1,
    max_size=6,
).map(lambda parts: "RRULE:" + ";".join(parts))
moment_like = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(Z|\+[0-9]{2}:00)?", fullmatch=True
)
texts = st.one_of(st.text(max_size=300), cron_like, rrule_like, moment_like)
json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=5,
)
objects = st.dictionaries(
    st.sampled_from(["cron", "at", "every", "rrule", "start", "end", "exclude"]),
    st.one_of(texts, json_like),
    max_size=4,
)


def parsed(schedule: object, timezone: str, jitter: str) -> Spec | tuple[InvalidField, ...]:
    """The spec of a schedule, or everything that is wrong with it."""
    try:
        return parse(schedule, timezone=timezone, jitter=jitter, now_us=NOW)
    except InvalidField as error:
        return (error,)
    except InvalidDocument as error:
        return error.errors


@given(
    schedule=st.one_of(texts, objects, json_like),
    timezone=st.sampled_from(["UTC", "America/New_York", "Africa/Cairo"]),
    jitter=st.sampled_from(["0s", "1s", "1h"]),
)
@example(schedule="0 0 * * *\x00", timezone="UTC", jitter="0s")
@example(schedule="²  * * * *", timezone="UTC", jitter="0s")
@example(schedule={"cron": "* * * * *", "start": "2" * 9_999}, timezone="UTC", jitter="0s")
@example(schedule={"cron": "* * * * *", "exclude": ["/" * 9_999]}, timezone="UTC", jitter="0s")
@example(schedule={"at": "0000-00-00T00:00"}, timezone="UTC", jitter="0s")
@example(schedule={"cron": "0 H * * *", "end": "2026-11-16T01:40Z"}, timezone="UTC", jitter="0s")
@example(
    schedule={"every": "1s", "start": "2199-12-31T23:59:59-12:00"}, timezone="UTC", jitter="0s"
)
def test_anything_is_accepted_or_refused(schedule: object, timezone: str, jitter: str) -> None:
    spec = parsed(schedule, timezone, jitter)
    if isinstance(spec, tuple):
        assert spec
        assert all(error.pointer.startswith(("/schedule", "/jitter")) for error in spec)
        assert all(len(str(error)) < 1_000 for error in spec)
        return
    compiled = compile_schedule(spec, JOB, NOW)
    is_hashed = spec.kind == "cron" and "H" in spec.expression
    if is_hashed and compiled.next_after(NOW) is None:  # of all else, `parse` knows
        with pytest.raises(ScheduleNeverFires):
            first_due_us(spec, JOB, now_us=NOW)
        return
    due_us = first_due_us(spec, JOB, now_us=NOW)
    assert compiled.next_after(due_us - 1) == due_us
    next_us = compiled.next_after(due_us)
    assert next_us is None or compiled.jitter_us(due_us) < next_us - due_us
    assert explain(spec, JOB, now_us=NOW).words
