"""One process and one database on one line of true time: the error bound holds, time only grows."""

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.clock import DatabaseClock
from wheelsched.core.offset import DRIFT_PARTS, ClockSample, Slew
from wheelsched.testing import VirtualClock

SECOND = 1_000_000_000

delays = st.one_of(st.integers(0, 3), st.integers(0, 2_000_000), st.integers(0, 5 * SECOND))
pauses = st.integers(0, 90 * SECOND)
offsets = st.integers(0, 2_000_000_000 * SECOND)
drifts = st.integers(-1_000, 1_000)  # thousandths of the drift that is allowed


class Database:
    """A clock that drifts steadily, and is moved when somebody moves it."""

    def __init__(self, offset_ns: int, drift: int) -> None:
        self.offset_ns = offset_ns
        self._drift = drift

    def now_ns(self, inner_ns: int) -> int:
        return inner_ns + self.offset_ns + inner_ns * self._drift // (1_000 * DRIFT_PARTS)


async def sampled(
    inner: VirtualClock, database: Database, there_ns: int, back_ns: int
) -> ClockSample:
    sent_ns = inner.now_ns()
    await inner.advance(there_ns)
    database_us = database.now_ns(inner.now_ns()) // 1_000
    await inner.advance(back_ns)
    return ClockSample(sent_ns=sent_ns, database_us=database_us, received_ns=inner.now_ns())


@given(offsets, drifts, st.lists(st.tuples(pauses, delays, delays), min_size=1, max_size=30))
async def test_the_error_holds_whatever_the_round_trips(
    offset_ns: int, drift: int, trips: list[tuple[int, int, int]]
) -> None:
    inner = VirtualClock()
    database = Database(offset_ns, drift)
    clock = DatabaseClock(inner, await sampled(inner, database, 0, 1_000_000))
    for pause_ns, there_ns, back_ns in trips:
        clock.add_sample(await sampled(inner, database, there_ns, back_ns))
        for _ in range(2):
            error_ns = abs(clock.now_ns() - database.now_ns(inner.now_ns()))
            assert error_ns <= clock.error_us * 1_000
            await inner.advance(pause_ns)


@given(st.lists(st.tuples(pauses, delays, st.integers(-300_000_000, 300_000_000))))
async def test_time_goes_back_only_at_a_step(moves: list[tuple[int, int, int]]) -> None:
    inner = VirtualClock()
    database = Database(1_000 * SECOND, 0)
    clock = DatabaseClock(inner, await sampled(inner, database, 0, 0))
    latest_ns = clock.now_ns()
    for pause_ns, delay_ns, move_ns in moves:
        database.offset_ns += move_ns
        has_stepped = clock.add_sample(await sampled(inner, database, 0, delay_ns))
        for advance_ns in (0, 1, 2, 199, pause_ns):
            await inner.advance(advance_ns)
            assert has_stepped or clock.now_ns() >= latest_ns
            has_stepped = False
            latest_ns = clock.now_ns()


@given(
    st.integers(1, 90 * SECOND),
    st.lists(st.tuples(st.integers(0, 20 * SECOND), st.integers(-90_000_000, 90_000_000))),
)
async def test_an_alarm_rings_to_the_nanosecond_whatever_is_corrected_meanwhile(
    delay_ns: int, moves: list[tuple[int, int]]
) -> None:
    inner = VirtualClock()
    database = Database(1_000 * SECOND, 0)
    clock = DatabaseClock(inner, await sampled(inner, database, 0, 0))
    when_ns = clock.now_ns() + delay_ns
    rung: list[int] = []
    clock.alarm(lambda: rung.append(clock.now_ns())).set(when_ns)
    stepped_past_ns = 0
    for pause_ns, move_ns in moves:
        await inner.advance(pause_ns)
        database.offset_ns += move_ns
        if clock.add_sample(await sampled(inner, database, 0, 0)) and not rung:
            stepped_past_ns = max(clock.now_ns() - when_ns, 0)
            await inner.run_ready()
    await inner.advance(1_000 * SECOND)
    assert len(rung) == 1
    assert 0 <= rung[0] - when_ns <= max(stepped_past_ns, 1)


@given(
    st.integers(-1_000_000, 1_000_000),
    st.integers(0, 10_000_000),
    st.integers(-50_000, 50_000),
    st.integers(0, 20_000_000),
)
def test_an_instant_is_the_first_at_which_it_is_that_time(
    offset_ns: int, now_ns: int, correction_ns: int, later_ns: int
) -> None:
    slew = Slew.level(offset_ns).toward(offset_ns + correction_ns, now_ns)
    time_ns = now_ns + slew.offset_at(now_ns) + later_ns
    instant_ns = slew.instant_of(time_ns)
    assert instant_ns <= now_ns + later_ns * 2
    assert instant_ns + slew.offset_at(instant_ns) >= time_ns
    assert instant_ns - 1 + slew.offset_at(instant_ns - 1) < time_ns
