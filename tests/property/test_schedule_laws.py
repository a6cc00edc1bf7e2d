"""Laws that every schedule obeys, whatever its kind, zone and policies."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.property import expressions

from wheelsched.errors import InvalidField
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Schedule

SECOND = 1_000_000
NOW = 1_794_800_000 * SECOND

zones = st.sampled_from(
    [
        "UTC",
        "America/New_York",
        "Europe/London",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Pacific/Apia",
        "America/Santiago",
        "Asia/Gaza",
        "Africa/Casablanca",
        "Antarctica/Troll",
    ]
)
crons = st.builds(
    lambda random, seconds: expressions.cron(random, seconds=seconds),
    st.randoms(use_true_random=False),
    st.booleans(),
)
others = st.sampled_from(
    [
        "every 1s",
        "every 90m",
        "every 1w",
        "H H * * *",
        "H/10 * * * *",
        "RRULE:FREQ=HOURLY;INTERVAL=5",
        "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;BYHOUR=1,2,3",
        "RRULE:FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;COUNT=30",
        "2027-03-14T02:30:00",
    ]
)
options = st.fixed_dictionaries(
    {},
    optional={
        "start": st.sampled_from(["2026-12-01", "2027-03-14T02:30"]),
        "end": st.sampled_from(["2027-11-07", "2030-01-01T00:00Z"]),
        "exclude": st.lists(st.sampled_from(["2027-03-14", "2027-10-31/2027-11-07"]), max_size=2),
    },
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule | None:
    text = draw(st.one_of(crons, others))
    kind = next((kind for kind in ("every", "RRULE", "2027") if text.startswith(kind)), "cron")
    key = {"every": "every", "RRULE": "rrule", "2027": "at", "cron": "cron"}[kind]
    written = {key: text.removeprefix("every "), **draw(options)}
    try:
        spec = parse(
            written,
            timezone=draw(zones),
            dst_gap=draw(st.sampled_from(["shift", "skip"])),
            dst_overlap=draw(st.sampled_from(["first", "last", "both"])),
            now_us=NOW,
        )
    except InvalidField:
        return None
    return compile_schedule(spec, UUID(int=draw(st.integers(0, 2**64))), NOW)


instants = st.integers(NOW, NOW + 4 * 366 * 86_400 * SECOND)


@given(schedules(), instants)
def test_next_is_greater_and_leaves_nothing_out(schedule: Schedule | None, after_us: int) -> None:
    if schedule is None:
        return
    due_us = schedule.next_after(after_us)
    if due_us is None:
        assert schedule.count(after_us, after_us + 400 * 366 * 86_400 * SECOND) == 0
        return
    assert due_us > after_us
    assert due_us % 1_000 == 0
    assert schedule.count(after_us, due_us - 1) == 0
    assert schedule.count(after_us, due_us) == 1
    assert schedule.next_after(due_us - 1) == due_us


@given(schedules(), instants)
def test_last_mirrors_next(schedule: Schedule | None, before_us: int) -> None:
    if schedule is None:
        return
    due_us = schedule.last_before(before_us)
    if due_us is None:
        assert schedule.count(0, before_us - 1) == 0
        return
    assert due_us < before_us
    assert schedule.count(due_us, before_us - 1) == 0
    assert schedule.next_after(due_us - 1) == due_us
    following_us = schedule.next_after(due_us)
    assert following_us is None or following_us >= before_us


@given(schedules())
def test_no_instant_is_too_far_away_to_ask_about(schedule: Schedule | None) -> None:
    if schedule is None:
        return
    for far_us in (10**17, 10**20):
        assert schedule.next_after(far_us) is None
        assert schedule.last_before(-far_us) is None
        first_us = schedule.next_after(-far_us)
        last_us = schedule.last_before(far_us)
        assert first_us is not None
        assert last_us is not None
        assert first_us <= last_us
        assert schedule.count(-far_us, first_us) == 1
        assert schedule.count(last_us, far_us) == 0


@given(schedules(), instants, st.integers(0, 40 * 86_400), st.integers(0, 400 * 86_400))
def test_counts_add_up(
    schedule: Schedule | None, after_us: int, first_s: int, second_s: int
) -> None:
    if schedule is None:
        return
    middle_us = after_us + first_s * SECOND
    until_us = middle_us + second_s * SECOND
    assert schedule.count(after_us, until_us) == schedule.count(
        after_us, middle_us
    ) + schedule.count(middle_us, until_us)


@given(schedules(), instants)
def test_counting_is_walking(schedule: Schedule | None, after_us: int) -> None:
    if schedule is None:
        return
    walked = 0
    due_us = schedule.next_after(after_us)
    last_us = after_us
    while due_us is not None and walked < 300:
        assert due_us > last_us
        walked += 1
        last_us = due_us
        due_us = schedule.next_after(due_us)
    assert schedule.count(after_us, last_us) == walked
