"""Compares the rooms of the fair queue with a model that has one list of runs for each queue."""

import os
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.fairness.batches import Parcel, queue_route, route, tenant

from wheelsched.config import BacklogRateConfig, FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness.breaker import Verdict
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.ports import Room
from wheelsched.values.duration import SECOND

Place = tuple[int, Lane, int]  # room, lane and priority

CONFIGS = st.builds(
    FairnessConfig,
    in_flight=st.integers(1, 6),
    in_flight_per_tenant=st.integers(1, 5),
    in_flight_per_origin=st.integers(1, 4),
    quantum=st.integers(1, 5),
    backlog_rate=st.just(BacklogRateConfig(factor=2, floor=1_000_000)),
)
LANES = st.sampled_from(Lane)
PRIORITIES = st.integers(0, 1)


class RoomsMachine(RuleBasedStateMachine):
    """Lends and recalls credits, puts, takes, gives back, withdraws, and lets batches expire."""

    @initialize(config=CONFIGS)
    def begin(self, config: FairnessConfig) -> None:
        self.queue: FairQueue[Parcel] = FairQueue(config, lambda _: 1)
        self.rooms = [Room(), Room(), Room()]
        self.now_us = 1_000 * SECOND
        self.numbers = count()
        self.waiting: dict[Place, list[int]] = {}
        self.expires: dict[int, int] = {}
        self.withdrawn: set[int] = set()
        self.taken: list[Parcel] = []  # handed out, and in the hands of workers
        self.callbacks: list[Parcel] = []  # in flight

    def place_of(self, batch: Parcel) -> Place:
        assert batch.route.room is not None
        return self.rooms.index(batch.route.room), batch.lane, batch.priority

    @rule(index=st.integers(0, 2), runs=st.integers(1, 9), lane=LANES, priority=PRIORITIES)
    def put(self, index: int, runs: int, lane: Lane, priority: int) -> None:
        to = queue_route(tenant(index // 2 + 1), self.rooms[index], f"queue-{index}")
        batch = Parcel(to, lane=lane, priority=priority)
        batch.runs = [next(self.numbers) for _ in range(runs)]
        batch.claim_by_us = self.now_us + 20 * SECOND
        assert self.queue.put(batch)
        self.waiting.setdefault(self.place_of(batch), []).extend(batch.runs)
        self.expires |= dict.fromkeys(batch.runs, batch.claim_by_us)

    @rule(lane=LANES)
    def put_callback(self, lane: Lane) -> None:
        assert self.queue.put(Parcel(route(tenant(1)), lane=lane))

    @rule(index=st.integers(0, 2), change=st.integers(-5, 12))
    def change_credits(self, index: int, change: int) -> None:
        room = self.rooms[index]
        room.credits = max(room.credits + change, 0)
        self.queue.rooms.changed(room)

    @rule()
    def take(self) -> None:
        batch = self.queue.take(self.now_us)
        if batch is None:
            may_go = self.queue.in_flight == 0 and any(
                self.rooms[index].credits for (index, _, _), runs in self.waiting.items() if runs
            )
            assert not may_go
            return
        room = batch.route.room
        if room is None:
            self.callbacks.append(batch)
            return
        assert 0 < len(batch) <= room.credits
        waiting = self.waiting[self.place_of(batch)]
        assert waiting[: len(batch)] == batch.runs
        del waiting[: len(batch)]
        room.credits -= len(batch)
        self.queue.rooms.changed(room)
        self.queue.done(batch, self.now_us, None)
        self.taken.append(batch)

    @precondition(lambda self: self.taken)
    @rule()
    def give_back(self) -> None:
        batch = self.taken.pop()
        batch.claim_by_us = min(
            [self.expires[run] for run in self.waiting[self.place_of(batch)]],
            default=self.now_us + 20 * SECOND,
        )
        self.expires |= dict.fromkeys(batch.runs, batch.claim_by_us)
        self.queue.put_back(batch)
        self.waiting[self.place_of(batch)][:0] = batch.runs

    @precondition(lambda self: self.callbacks)
    @rule()
    def answer(self) -> None:
        self.queue.done(self.callbacks.pop(), self.now_us, Verdict.ANSWERED)

    @rule(data=st.data(), index=st.integers(0, 2))
    def withdraw(self, data: st.DataObject, index: int) -> None:
        runs = [run for place, runs in self.waiting.items() if place[0] == index for run in runs]
        gone = set(data.draw(st.lists(st.sampled_from(runs), max_size=5))) if runs else set()

        def strip(batch: Parcel) -> int:
            kept = [run for run in batch.runs if run not in gone]
            stripped, batch.runs = len(batch.runs) - len(kept), kept
            return stripped

        self.queue.rooms.drop_withdrawn(self.rooms[index], strip, self.now_us)
        for waiting in self.waiting.values():
            waiting[:] = [run for run in waiting if run not in gone]

    @rule(delay_us=st.sampled_from([SECOND, 6 * SECOND, 15 * SECOND]))
    def wait(self, delay_us: int) -> None:
        self.now_us += delay_us
        expired = {
            run for batch in self.queue.rooms.take_expired(self.now_us) for run in batch.runs
        }
        for waiting in self.waiting.values():
            assert {run for run in waiting if self.expires[run] <= self.now_us} == {
                run for run in waiting if run in expired
            }
            waiting[:] = [run for run in waiting if run not in expired]

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        for index, room in enumerate(self.rooms):
            runs = sum(len(runs) for place, runs in self.waiting.items() if place[0] == index)
            assert room.waiting == runs
            assert room.late == sum(
                len(runs)
                for (of_room, lane, _), runs in self.waiting.items()
                if of_room == index and lane is Lane.LATE
            )
        assert self.queue.in_flight == len(self.callbacks)

    def teardown(self) -> None:
        """With enough credits, every run goes in the end."""
        if not hasattr(self, "queue"):
            return
        while self.callbacks:
            self.answer()
        for room in self.rooms:
            room.credits += 1_000_000
            self.queue.rooms.changed(room)
        while len(self.queue):
            before = len(self.queue)
            self.take()
            while self.callbacks:
                self.answer()
            if len(self.queue) == before:  # the late lane has a limited rate
                self.now_us += 1_000
        assert not any(self.waiting.values())


LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"

TestRooms = RoomsMachine.TestCase
TestRooms.settings = settings(max_examples=2_000 if LONG else 150, stateful_step_count=50)
