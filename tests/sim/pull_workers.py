"""Workers that pull, by claims or over a stream.

Invariant: a worker notes a run before it begins it, and never has more in hand than it has room
for. It says how a run ended until it is answered. What it does with a run, and how long that takes,
is drawn within what the name of the queue says.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from tests.checker.records import Beat, Offer
from tests.sim.api_process import ApiProcess, SimulatedStream, Unheard, decode
from tests.sim.hand_outs import HandOuts
from tests.sim.machine import Machine
from tests.sim.scene import Scene

from wheelsched.api.work.claims import ClaimKey, Wanted
from wheelsched.errors import ClaimExpired, ClaimReused
from wheelsched.ports.work import QueueRun
from wheelsched.values.duration import format_duration
from wheelsched.wire import stream as wire
from wheelsched.wire.queue import ClaimedRun, HeartbeatItem, OutcomeItem, ReturnedItem

MS = 1_000_000
SECOND_US = 1_000_000
WAIT_S = 5  # how long a claim waits for runs
FIRST_BEAT_MS = 1_500
SENDINGS = 3  # of one claim
LEASES_US = (None, 5 * SECOND_US, 8 * SECOND_US)

RUN = msgspec.json.Decoder(ClaimedRun)

Attempt = tuple[str, int]  # a run, and its token


class Manner(Struct, frozen=True, kw_only=True):
    """Who a worker is, and how it works."""

    name: str
    tenant_id: UUID
    queues: tuple[str, ...]
    room: int
    lease_us: int | None
    is_streaming: bool


class PullEnvironment(Struct, frozen=True, kw_only=True):
    """What workers share."""

    scene: Scene
    notes: HandOuts
    apis: list[ApiProcess]
    is_calm: Callable[[], bool]  # everything succeeds at once


class PullWorker:
    """One worker."""

    def __init__(self, around: PullEnvironment, manner: Manner, random: Random) -> None:
        self.manner = manner
        self.machine = Machine(around.scene.clock, random.randint(0, 10**14))
        self.is_leaving = False
        self._around = around
        self._random = random
        self._in_hand: dict[Attempt, asyncio.Task[None]] = {}
        self._unheard: dict[Attempt, OutcomeItem] = {}  # outcomes without an answer
        self._changed = asyncio.Event()
        self._asked = 0  # credits that the stream has
        self._numbers = 0
        self._sent: dict[int, list[Attempt]] = {}  # outcomes and heartbeats, by their message
        self._beats: dict[int, tuple[int, dict[Attempt, int]]] = {}
        self.stream: SimulatedStream | None = None
        self._is_welcome = False
        self._has_heard = False  # anything, since it last looked
        self._lost: asyncio.Future[None] | None = None  # the connection of a claim
        self._offered_us: int | None = None
        self._tasks = [self._start(self._stream() if manner.is_streaming else self._poll())]
        if not manner.is_streaming:
            self._tasks.append(self._start(self._report()))

    # Its life.

    @property
    def is_over(self) -> bool:
        return self._tasks[0].done()

    def check(self) -> None:
        """Raises what it has died of by itself."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def die(self, *, is_known: bool) -> None:
        """SIGKILL, or a loss of power."""
        self.machine.die()
        self.stop_offering()
        for attempt in self._in_hand:
            self._around.notes.leave(*attempt)
        for task in (*self._tasks, *self._in_hand.values()):
            task.cancel()
        if is_known:
            if self._lost is not None and not self._lost.done():
                self._lost.set_result(None)
            if self.stream is not None:
                self.stream.hang_up()

    def freeze(self) -> None:
        self.stop_offering()
        self.machine.freeze()

    def leave(self) -> None:
        """SIGTERM: takes no more, gives back what it has not begun, and ends the rest."""
        self.is_leaving = True
        if self.stream is not None:
            self.stream.say(wire.Stop())
        self._changed.set()

    # Runs.

    @property
    def _room(self) -> int:
        held = len(self._in_hand) + len(self._unheard)
        return 0 if self.is_leaving else max(0, self.manner.room - held)

    def _take(self, contents: list[bytes]) -> list[Attempt]:
        """Begins runs. Those that it gives back are returned."""
        returned: list[Attempt] = []
        for content in contents:
            run = RUN.decode(content)
            attempt = (run.run_id, run.fencing_token)
            if attempt in self._in_hand or attempt in self._unheard:
                continue  # the same answer again
            picky = self.manner.is_streaming and not self._around.is_calm()
            if self.is_leaving or (picky and self._random.random() < 0.1):
                returned.append(attempt)
                continue
            self._around.notes.receive(
                self.manner.name,
                self.manner.tenant_id,
                content,
                is_pushed=self.manner.is_streaming,
            )
            self._in_hand[attempt] = self._start(self._work(run, attempt))
        return returned

    async def _work(self, run: ClaimedRun, attempt: Attempt) -> None:
        temper = "ok" if self._around.is_calm() else run.queue.split("-")[0]
        beating = None
        if temper != "mute":
            beating = self._start(self._keep_beating(run, attempt))
        try:
            await self.machine.sleep(self._draw_ms(temper) * MS)
        finally:
            if beating is not None:
                beating.cancel()
        outcome = self._draw_outcome(temper, run)
        self._around.notes.end(*attempt, _answer(outcome))
        self._in_hand.pop(attempt, None)
        self._unheard[attempt] = outcome
        self._changed.set()
        self._say_outcomes()

    def _draw_ms(self, temper: str) -> int:
        match temper:
            case "slow":
                return self._random.randint(200, 4_000)
            case "mute":
                return self._random.choice((1, 1_000, 4_000, 8_000))
            case "long":
                return self._random.randint(4_000, 14_000)
            case _:
                return self._random.choice((1, self._random.randint(1, 40)))

    def _draw_outcome(self, temper: str, run: ClaimedRun) -> OutcomeItem:
        luck = self._random.random()
        is_ok = temper != "flaky" or luck >= 0.4
        return OutcomeItem(
            run_id=run.run_id,
            token=run.fencing_token,
            ok=is_ok,
            error="" if is_ok else "flaky",
            retry=is_ok or luck >= 0.05,
        )

    async def _keep_beating(self, run: ClaimedRun, attempt: Attempt) -> None:
        lease_us = self.manner.lease_us or run.timeout_ms * 1_000
        pause_ms = FIRST_BEAT_MS
        while True:
            await self.machine.sleep(pause_ms * MS)
            pause_ms = lease_us // 3_000
            if self.manner.is_streaming:
                self._say_beat(attempt, lease_us)
            else:
                await self._send_beat(attempt, lease_us)

    def _heard_beat(
        self, attempt: Attempt, sent_us: int, lease_us: int, *, is_held: bool, is_cancelled: bool
    ) -> None:
        now_us = self._around.scene.logbook.now_us()
        beat = Beat(sent_us=sent_us, answered_us=now_us, lease_us=lease_us, is_held=is_held)
        self._around.notes.beat(*attempt, beat)
        if is_cancelled or not is_held:
            self._stop(attempt)

    def _stop(self, attempt: Attempt) -> None:
        """Stops a run that it was told to stop."""
        task = self._in_hand.pop(attempt, None)
        if task is not None:
            self._around.notes.tell(*attempt)
            self._around.notes.leave(*attempt)
            task.cancel()
            self._changed.set()
            self._ask_for_more()

    def _heard_outcome(self, attempt: Attempt, *, is_accepted: bool) -> None:
        if self._unheard.pop(attempt, None) is not None:
            self._around.notes.leave(*attempt)
            if is_accepted:
                self._around.notes.accept(*attempt)
        self._changed.set()

    # By claims.

    async def _poll(self) -> None:
        while not self.is_leaving or self._in_hand or self._unheard:
            if not self._room:
                self.stop_offering()
                self._changed.clear()
                await self._changed.wait()
                continue
            await self._claim()
        self.stop_offering()

    async def _claim(self) -> None:
        self._numbers += 1
        api, max_runs = self._pick_api(), min(self._room, self._random.randint(1, 3))
        key = ClaimKey(
            self.manner.tenant_id, self.manner.queues, self.manner.name, f"claim-{self._numbers}"
        )
        if api is None:
            await self._rest()
            return
        self._offer()
        for _ in range(SENDINGS):
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lost = lost
            wanted = Wanted(
                max_runs=max_runs,
                wait_us=WAIT_S * SECOND_US,
                lease_us=self.manner.lease_us,
                lost=lost,
            )
            try:
                claimed = await api.call(lambda w=wanted: api.claims.claim(key, w), WAIT_S)  # type: ignore[misc]
            except (Unheard, ClaimExpired, ClaimReused):
                self.stop_offering()
                if not lost.done():
                    lost.set_result(None)
                await self._rest()
                continue
            await self.machine.thawed()
            if claimed.runs:
                self._around.notes.count(self.manner.name, len(claimed.runs), max_runs)
            self._take([_closed(run) for run in claimed.runs])
            return

    async def _report(self) -> None:
        """Says how runs ended, until it is answered."""
        while True:
            self._changed.clear()
            items = dict(self._unheard)
            api = self._pick_api()
            if not items or api is None:
                await (self._changed.wait() if api is not None else self._rest())
                continue
            try:
                answers = await api.call(
                    lambda a=api, i=items: a.reports.finish(  # type: ignore[misc]
                        self.manner.tenant_id, list(i.values())
                    ),
                    WAIT_S * 2,
                )
            except Unheard:
                await self._rest()
                continue
            await self.machine.thawed()
            for attempt, answer in zip(items, answers, strict=True):
                self._heard_outcome(attempt, is_accepted=answer.accepted)

    async def _send_beat(self, attempt: Attempt, lease_us: int) -> None:
        api = self._pick_api()
        if api is None:
            return
        sent_us = self._around.scene.logbook.now_us()
        item = HeartbeatItem(run_id=attempt[0], token=attempt[1])
        try:
            (answer,) = await api.call(
                lambda: api.reports.heartbeat(self.manner.tenant_id, [item], self.manner.lease_us)
            )
        except Unheard:
            return
        await self.machine.thawed()
        self._heard_beat(
            attempt, sent_us, lease_us, is_held=answer.held, is_cancelled=answer.cancel
        )

    # Over a stream.

    async def _stream(self) -> None:
        while not self.is_leaving or self._in_hand or self._unheard:
            api = self._pick_api()
            if api is None:
                await self._rest()
                continue
            stream = SimulatedStream(self._around.scene, api, self.machine, self._hear)
            self.stream, self._is_welcome, self._asked = stream, False, self._room
            api.connect(self.manner.tenant_id, stream)
            lease_us = self.manner.lease_us
            stream.say(
                wire.Hello(
                    worker_id=self.manner.name,
                    queues=self.manner.queues,
                    credits=self._asked,
                    lease=None if lease_us is None else format_duration(lease_us),
                )
            )
            await self._until_lost(stream)
            self.stop_offering()
            self.stream = None
            await self._rest()
        self.stop_offering()

    async def _until_lost(self, stream: SimulatedStream) -> None:
        """Until the stream ends; a worker that hears nothing for long ends it itself."""
        silent_s = 0
        while not stream.is_lost:
            if self.is_leaving and not self._in_hand and not self._unheard:
                stream.hang_up()
                return
            self._has_heard = False
            await self.machine.sleep(1_000 * MS)
            silent_s = 0 if self._has_heard else silent_s + 1
            if silent_s > 25:
                stream.hang_up()
                return
            if silent_s % 8 == 7:
                stream.say(wire.Alive())

    def _hear(self, data: bytes) -> None:
        self._has_heard = True
        if not data:
            return  # the end of the stream
        match decode(data):
            case wire.Welcome():
                self._is_welcome = True
                self._offer()
                self._say_outcomes()
            case wire.Runs(runs=runs):
                self._hear_runs([wire.encode(run) for run in runs])
            case wire.OutcomesAnswered(id=number, items=items):
                for attempt, answer in zip(self._sent.pop(number, ()), items, strict=False):
                    self._heard_outcome(attempt, is_accepted=answer.accepted)
                self._ask_for_more()
            case wire.HeartbeatsAnswered(id=number, items=answers):
                sent_us, attempts = self._beats.pop(number, (0, {}))
                for (attempt, lease_us), held in zip(attempts.items(), answers, strict=False):
                    self._heard_beat(
                        attempt, sent_us, lease_us, is_held=held.held, is_cancelled=held.cancel
                    )
            case wire.Cancel(items=items):
                for item in items:
                    self._stop((item.run_id, item.token))

    def _hear_runs(self, contents: list[bytes]) -> None:
        self._around.notes.count(self.manner.name, len(contents), self._asked)
        self._asked -= len(contents)
        if returned := self._take(contents):
            items = [ReturnedItem(run_id=run_id, token=token) for run_id, token in returned]
            self._say(wire.GiveBack(items=items))
        self._ask_for_more()

    def _say(self, message: wire.WorkerMessage) -> None:
        if self.stream is not None and self._is_welcome:
            self.stream.say(message)

    def _say_outcomes(self) -> None:
        if self.stream is None or not self._is_welcome or not self._unheard:
            return
        self._numbers += 1
        self._sent[self._numbers] = list(self._unheard)
        self._say(wire.Outcomes(id=self._numbers, items=list(self._unheard.values())))

    def _say_beat(self, attempt: Attempt, lease_us: int) -> None:
        self._numbers += 1
        self._beats[self._numbers] = (self._around.scene.logbook.now_us(), {attempt: lease_us})
        item = HeartbeatItem(run_id=attempt[0], token=attempt[1])
        self._say(wire.Heartbeats(id=self._numbers, items=[item]))

    def _ask_for_more(self) -> None:
        """Asks for as many runs as it has room for now."""
        if self.stream is None or not self._is_welcome:
            return
        more = self._room - self._asked
        if more > 0:
            self._asked += more
            self._say(wire.AddCredits(credits=more))
        if self._asked > 0:
            self._offer()
        else:
            self.stop_offering()

    # Both.

    def _offer(self) -> None:
        if self._offered_us is None and not self.is_leaving:
            self._offered_us = self._around.scene.logbook.now_us()

    def stop_offering(self) -> None:
        """From now on it takes nothing."""
        if self._offered_us is not None:
            offer = Offer(
                worker=self.manner.name,
                tenant=str(self.manner.tenant_id),
                queues=self.manner.queues,
                from_us=self._offered_us,
                until_us=self._around.scene.logbook.now_us(),
            )
            self._around.scene.logbook.offers.append(offer)
            self._offered_us = None

    def _pick_api(self) -> ApiProcess | None:
        alive = [api for api in self._around.apis if api.is_alive]
        return self._random.choice(alive) if alive else None

    async def _rest(self) -> None:
        await self.machine.sleep(self._random.randint(50, 1_000) * MS)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work)


def _closed(run: QueueRun) -> bytes:
    return run.content + b',"lease_expires_at":""}'


def _answer(outcome: OutcomeItem) -> str:
    if outcome.ok:
        return "ok"
    return "failed" if outcome.retry else "rejected"
