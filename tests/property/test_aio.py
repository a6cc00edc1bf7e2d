"""AsyncWheel against a plain model: a dict of what is pending, and when.

Whatever callbacks do to each other and however slowly batches are taken, each timer comes out
once, never early, within a tick of its time, or is handed back by close.
"""

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.aio import AsyncWheel, Timer
from wheelsched.testing import VirtualClock

TICK_NS = 1 << 20
START_NS = 1 << 40

# Mostly within a tick of each other, so that many are due at once; some far away.
delays_ns = st.one_of(
    st.integers(-1, 12).map(lambda eighths: eighths * TICK_NS // 8),
    st.sampled_from([10 * TICK_NS, 10**9, 600 * 10**9, 10**14]),
)
ages = st.integers(0, 7)


@dataclass(frozen=True)
class Add:
    delay_ns: int


@dataclass(frozen=True)
class Cancel:
    age: int  # 0 is the newest


@dataclass(frozen=True)
class Move:
    age: int
    delay_ns: int


@dataclass(frozen=True)
class Advance:
    delay_ns: int


@dataclass(frozen=True)
class Take:
    limit: int


adds = st.builds(Add, delays_ns)
changes = st.builds(Cancel, ages) | st.builds(Move, ages, delays_ns)
advances = st.builds(Advance, st.sampled_from([0, TICK_NS // 2, 3 * TICK_NS, 10**9]))


class Model:
    """What is pending, by number: its time, and when that was last decided."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.pending: dict[int, tuple[int, int]] = {}

    def put(self, number: int, when_ns: int) -> None:
        self.pending[number] = (when_ns, self._clock.now_ns())

    def came(self, number: int) -> int:
        """Check that `number` is pending and not early; return how late it is."""
        when_ns, decided_ns = self.pending.pop(number)
        assert when_ns <= self._clock.now_ns()
        return self._clock.now_ns() - max(when_ns, decided_ns)

    def overdue(self) -> int:
        """Count what should have come, whatever its place in its tick."""
        now_ns = self._clock.now_ns()
        return sum(when_ns + TICK_NS <= now_ns for when_ns, _ in self.pending.values())


class CallbackRun:
    """Callbacks that change other callbacks when they are called."""

    def __init__(self, portion: int) -> None:
        self.clock = VirtualClock(START_NS)
        self.model = Model(self.clock)
        self.wheel = AsyncWheel[None](self.clock, portion=portion)
        self.timers: list[Timer] = []

    def change(self, change: Add | Cancel | Move, reaction: Add | Cancel | Move | None) -> None:
        match change:
            case Add(delay_ns):
                number = len(self.timers)
                when_ns = max(0, self.clock.now_ns() + delay_ns)
                self.model.put(number, when_ns)
                self.timers.append(self.wheel.call_at(when_ns, self.called, number, reaction))
            case Cancel(age) if age < len(self.timers):
                number = len(self.timers) - 1 - age
                in_time = self.model.pending.pop(number, None) is not None
                assert self.timers[number].cancel() == in_time
            case Move(age, delay_ns) if age < len(self.timers):
                number = len(self.timers) - 1 - age
                when_ns = self.clock.now_ns() + delay_ns
                in_time = number in self.model.pending
                assert self.timers[number].reschedule(when_ns) == in_time
                if in_time:
                    self.model.put(number, when_ns)
            case _:
                pass
        assert len(self.wheel) == len(self.model.pending)

    def called(self, number: int, reaction: Add | Cancel | Move | None) -> None:
        assert self.model.came(number) < TICK_NS
        if reaction is not None:
            self.change(reaction, None)


@given(
    st.lists(
        st.one_of(
            st.tuples(adds, changes),
            st.tuples(adds, st.none() | adds),
            st.tuples(changes, st.none()),
            advances,
        ),
        min_size=20,
        max_size=100,
    ),
    st.integers(1, 8),
)
def test_callbacks(
    steps: list[tuple[Add | Cancel | Move, Add | Cancel | Move | None] | Advance], portion: int
) -> None:
    async def play() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: failures.append(report))
        run = CallbackRun(portion)
        for step in steps:
            match step:
                case Advance(delay_ns):
                    await run.clock.advance(delay_ns)
                    assert run.model.overdue() == 0
                case (change, reaction):
                    run.change(change, reaction)
        left = run.wheel.close().callbacks
        assert {timer.args[0]: timer.when_ns for timer in left} == {
            number: when_ns for number, (when_ns, _) in run.model.pending.items()
        }
        assert len(left) == len(run.model.pending)
        assert failures == []

    asyncio.run(play())


@given(
    st.lists(
        adds | adds | changes | advances | st.builds(Take, st.integers(1, 5)),
        min_size=20,
        max_size=100,
    )
)
def test_batches(steps: list[Add | Cancel | Move | Advance | Take]) -> None:
    async def play() -> None:
        clock = VirtualClock(START_NS)
        model = Model(clock)
        wheel = AsyncWheel[int](clock)
        handles: list[int] = []
        for step in steps:
            match step:
                case Add(delay_ns):
                    when_ns = max(0, clock.now_ns() + delay_ns)
                    model.put(len(handles), when_ns)
                    handles.append(wheel.add(when_ns, len(handles)))
                case Cancel(age) if age < len(handles):
                    number = len(handles) - 1 - age
                    in_time = model.pending.pop(number, None) is not None
                    assert wheel.cancel(handles[number]) == in_time
                case Move(age, delay_ns) if age < len(handles):
                    number = len(handles) - 1 - age
                    when_ns = clock.now_ns() + delay_ns
                    in_time = number in model.pending
                    assert wheel.reschedule(handles[number], when_ns) == in_time
                    if in_time:
                        model.put(number, when_ns)
                case Advance(delay_ns):
                    await clock.advance(delay_ns)
                case Take(limit):
                    await take(wheel, model, limit, clock)
                case _:
                    pass
            assert len(wheel) == len(model.pending)
        assert {number: when_ns for when_ns, number in wheel.close().items} == {
            number: when_ns for number, (when_ns, _) in model.pending.items()
        }

    asyncio.run(play())


async def take(wheel: AsyncWheel[int], model: Model, limit: int, clock: VirtualClock) -> None:
    """Take one batch if one is due now; what is due by a whole tick must then be in it first."""
    overdue = model.overdue()
    batches = wheel.batches(limit)
    taking = asyncio.ensure_future(anext(batches))
    await clock.run_ready()
    if not taking.done():
        assert overdue == 0
        taking.cancel()
        await clock.run_ready()
        return
    batch = await taking
    assert min(overdue, limit) <= len(batch) <= limit
    for number in batch:
        model.came(number)
