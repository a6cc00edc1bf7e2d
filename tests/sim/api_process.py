"""The processes of the API that workers which pull talk to: the product's own, on simulated links.

Invariant: whatever a worker asks for travels to a process and back, and gets lost on the way, or
with the process. Who hears nothing knows nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar
from uuid import UUID

from tests.sim.hand_outs import HandOuts, NotedDesks
from tests.sim.machine import Machine
from tests.sim.network import Line
from tests.sim.scene import Scene
from tests.sim.sockets import Network

from wheelsched.api.work.claims import Claims
from wheelsched.api.work.contents import run_frames
from wheelsched.api.work.reports import Reports
from wheelsched.api.work.session import Session
from wheelsched.api.work.stream import WorkStream
from wheelsched.config import LinkConfig
from wheelsched.delivery.link.client import LinkClient
from wheelsched.delivery.link.connection import Connection
from wheelsched.delivery.link.handshake import Identity
from wheelsched.delivery.link.links import Links
from wheelsched.delivery.link.server import LinkServer
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.delivery.queue.reports import StoredReports
from wheelsched.errors import LinkRefused, WheelschedError
from wheelsched.ports import LinkedShard, ShardLink
from wheelsched.ports.work import QueueRun
from wheelsched.wire import stream as wire

MS = 1_000_000
TICK_NS = 1_000 * MS
ANSWER_S = 2.0  # within which a worker expects an answer
LINK = LinkConfig()

Answer = TypeVar("Answer")


class Unheard(Exception):
    """no answer, or one that says that the process could not do it"""


class Listener:
    """Where the links to one shard arrive."""

    def __init__(
        self, network: Network, queues: QueueDispatcher, line: Line, machine: Machine, key: bytes
    ) -> None:
        self._links = line.links
        self.errors: list[BaseException] = []
        self._server = LinkServer(queues, self._find_process, machine, LINK)
        self.link = ShardLink(network.listen(machine, self._server._connect), key)
        self._server._end_task = self._end_task  # type: ignore[method-assign] # it only logs
        self._server._start(self._server._tick())

    def join(self, shard_id: UUID) -> None:
        self._server.identify(Identity(shard_id, self.link.key))

    async def _find_process(self, process_id: UUID) -> Identity:
        key = await self._links.key_of(process_id)
        if key is None:
            raise LinkRefused
        return Identity(process_id, key)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._server._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)


def noted(queues: QueueDispatcher, notes: HandOuts) -> QueueDispatcher:
    """The same, and what it hands out to links is noted."""
    desks = NotedDesks(_Desks(queues), notes)
    queues.open = desks.open  # type: ignore[method-assign,assignment] # a desk like its own
    return queues


class _Desks:
    def __init__(self, queues: QueueDispatcher) -> None:
        self.open = queues.open


class SimulatedClient(LinkClient):
    """Dials over the simulated network."""

    network: Network
    machine: Machine

    async def _dial(self, connection: Connection) -> None:
        await self.network.dial(self.machine, self._address.port, connection)


class SimulatedLinks(Links):
    """The links of one process."""

    network: Network
    machine: Machine
    random: Random

    def _client(self, shard: LinkedShard) -> LinkClient:
        client = super()._client(shard)
        simulated = SimulatedClient(
            client._process, client._address, client._attach, self.machine, LINK
        )
        simulated.network, simulated.machine = self.network, self.machine
        simulated._random = self.random
        return simulated

    def _follow(self, shards: list[LinkedShard]) -> None:
        for task in self._running.values():
            if task.done() and not task.cancelled():
                task.result()  # it never ends by itself
        super()._follow(shards)


class ApiProcess:
    """One process."""

    def __init__(self, scene: Scene, network: Network, name: str, random: Random) -> None:
        self.name = name
        self.machine = Machine(scene.clock, random.randint(0, 10**14))
        self.line = Line(scene.store.for_process(), scene.clock, self.machine, random)
        self.loss = 0.0  # of requests and of answers
        self.died = asyncio.Event()
        self._scene = scene
        self._random = random
        reports = StoredReports(self.line.history, self.line.jobs, scene.database_us, random)
        self.distributor = Distributor(reports, self.machine)
        self.reports = Reports(self.distributor)
        self.claims = Claims(self.distributor, self.reports.keep_lease, scene.database_us)
        process = Identity(UUID(int=random.getrandbits(128), version=4), random.randbytes(32))
        self._links = SimulatedLinks(
            process, self.line.links, self.distributor.attach, self.machine, LINK
        )
        self._links.network, self._links.machine = network, self.machine
        self._links.random = random
        self._network = network
        self.streams: dict[WorkStream, SimulatedStream] = {}
        self._tasks = [self._start(self._run())]

    @property
    def is_alive(self) -> bool:
        return not self.machine.is_dead

    def check(self) -> None:
        """Raises what it has died of by itself."""
        if self.is_alive and self._tasks[0].done():
            self._tasks[0].result()

    def die(self, *, is_known: bool) -> None:
        """SIGKILL, or a loss of power."""
        self.machine.die()
        self.died.set()
        self._network.lose(self.machine, is_known=is_known)
        for stream in self.streams.values():
            stream.lose(is_known=is_known)
        for task in self._tasks:
            task.cancel()

    async def call(self, do: Callable[[], Awaitable[Answer]], wait_s: float = 0) -> Answer:
        """One request, answered within `wait_s` and a bit. Raises `Unheard`."""
        luck = self._random.random()
        await self._travel()
        if not self.is_alive:
            raise Unheard
        if luck < self.loss / 2:
            await asyncio.sleep(ANSWER_S)
            raise Unheard
        handling = self._start(self._handle(do))
        dying = asyncio.ensure_future(self.died.wait())
        try:
            await asyncio.wait(
                {handling, dying},
                timeout=wait_s + ANSWER_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            dying.cancel()
        await self._travel()
        is_heard = handling.done() and not handling.cancelled() and luck >= self.loss
        if self.machine.is_dead or not is_heard:
            raise Unheard
        try:
            return handling.result()
        except WheelschedError as error:
            raise Unheard from error

    def connect(self, tenant_id: UUID, stream: "SimulatedStream") -> None:
        """A worker opens a stream. Raises `Unheard`."""
        if not self.is_alive:
            raise Unheard
        self._tasks.append(self._start(self._serve(tenant_id, stream)))

    async def _serve(self, tenant_id: UUID, stream: "SimulatedStream") -> None:
        session = Session(self.distributor, tenant_id)
        served = WorkStream(stream, session, self.reports, tenant_id, self.machine)
        self.streams[served] = stream
        try:
            await served.run()
        finally:
            del self.streams[served]
            stream.lose(is_known=True)

    async def _handle(self, do: Callable[[], Awaitable[Answer]]) -> Answer:
        await self.machine.thawed()
        answer = await do()
        await self.machine.thawed()
        return answer

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.distributor.run())
            tasks.create_task(self._links.run())
            tasks.create_task(self._look_after())

    async def _look_after(self) -> None:
        while True:
            await self.machine.sleep(TICK_NS)
            for stream in tuple(self.streams):
                stream.tick()

    async def _travel(self) -> None:
        await self._scene.clock.sleep(self._random.randint(1, 5) * MS)

    def _start(self, work: Awaitable[Answer]) -> "asyncio.Task[Answer]":
        async def run() -> Answer:
            return await work

        return asyncio.get_running_loop().create_task(run())


class SimulatedStream:
    """The connection of a stream: the end of the process. Messages are as on the wire."""

    def __init__(
        self, scene: Scene, api: ApiProcess, machine: Machine, hear: Callable[[bytes], None]
    ) -> None:
        self._scene = scene
        self._api = api
        self._machine = machine  # of the worker
        self._hear = hear
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_lost = False  # the worker knows
        self._is_cut = False  # the process knows
        self._held: list[Callable[[], None]] | None = None  # while it is black-holed

    # What the worker does.

    def say(self, message: wire.WorkerMessage) -> None:
        if not self.is_lost and not self._is_cut and self._api.is_alive:
            data = wire.encode(message)
            self._carry(lambda: self._api.machine.post(lambda: self._inbox.put_nowait(data)))

    def hang_up(self) -> None:
        """The worker is gone, or its kernel has closed its socket."""
        self.is_lost = True
        self._carry(lambda: self._api.machine.post(lambda: self._inbox.put_nowait(None)))

    # What the process does.

    async def receive(self) -> wire.WorkerMessage | None:
        data = None if self._is_cut else await self._inbox.get()
        await self._api.machine.thawed()
        return None if data is None else wire.worker_decoder.decode(data)

    async def send(self, message: wire.SchedulerMessage) -> None:
        self._send(wire.encode(message))

    async def send_runs(self, runs: Sequence[QueueRun], expires_us: int) -> None:
        for frame in run_frames(runs, expires_us):
            self._send(frame)

    async def close(self, error: WheelschedError | None) -> None:
        self.cut()

    def cut(self) -> None:
        self._is_cut = True
        self._inbox.put_nowait(None)
        self.lose(is_known=True)

    def lose(self, *, is_known: bool) -> None:
        """The process has closed the stream, or has died."""
        self._is_cut = True
        if is_known:
            self._carry(lambda: self._machine.post(self._lost))

    def hold(self) -> None:
        """A black hole between worker and process."""
        if self._held is None:
            self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for carry in held:
            carry()

    def _send(self, data: bytes) -> None:
        if self._is_cut or self._api.machine.is_dead:
            raise ConnectionError
        self._carry(lambda: self._machine.post(lambda: self._deliver(data)))

    def _deliver(self, data: bytes) -> None:
        if not self.is_lost:
            self._hear(data)

    def _lost(self) -> None:
        self.is_lost = True
        self._hear(b"")

    def _carry(self, arrive: Callable[[], None]) -> None:
        """Brings something to the other end, a little later."""

        def deliver() -> None:
            if self._held is None:
                arrive()
            else:
                self._held.append(arrive)

        alarm = self._scene.clock.alarm(deliver)
        alarm.set(self._scene.clock.now_ns() + MS)


def decode(data: bytes) -> wire.SchedulerMessage:
    return wire.scheduler_decoder.decode(data)
