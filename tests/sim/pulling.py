"""Queues in a simulation: jobs whose runs wait there, the processes of the API, and the workers.

Invariant: a world that has not opened them is as if there were none.
"""

from collections.abc import Callable
from random import Random
from uuid import UUID

from msgspec.structs import replace
from tests.checker.records import Definition
from tests.sim.api_process import ApiProcess, Listener, noted
from tests.sim.clients import Clients
from tests.sim.hand_outs import HandOuts
from tests.sim.machine import Machine
from tests.sim.network import Line
from tests.sim.pull_workers import LEASES_US, Manner, PullEnvironment, PullWorker
from tests.sim.scene import Scene
from tests.sim.sockets import Network
from tests.sim.virtual_time import keep_virtual_time

from wheelsched.core.model import QueueTarget, Target
from wheelsched.delivery.dispatchers import Dispatchers
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.ports import Dispatcher

SECOND_US = 1_000_000
TENANTS = (UUID(int=3_000), UUID(int=3_001))
TEMPERS = ("ok", "ok", "slow", "flaky", "mute", "long")
UNSERVED = "idle"  # few workers take its runs
CLAIM_WITHIN_S = (4, 12, 3_600, 3_600)


class QueueClients(Clients):
    """Clients whose jobs have queues."""

    letter = "q"

    def __init__(self, scene: Scene, random: Random) -> None:
        super().__init__(scene, random)
        self._tenants = list(TENANTS)
        tempers = [*random.sample(TEMPERS, 3), UNSERVED]
        self.queues = tuple(sorted({f"{temper}-1" for temper in tempers}))

    def _draw(self, job_id: UUID) -> Definition:
        queue = self._random.choice(self.queues)
        return replace(
            super()._draw(job_id),
            url=f"queue:{queue}",
            queue=queue,
            claim_within_us=self._random.choice(CLAIM_WITHIN_S) * SECOND_US,
            overlap=self._random.choice(("skip", "queue", "allow", "allow", "cancel")),
        )

    def _target(self, job_id: UUID, definition: Definition) -> Target:
        return QueueTarget(queue=definition.queue, claim_within_us=definition.claim_within_us)


class Pulling:
    """Everything about queues in one world."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._seed = seed
        self._random = self._source("pulling")
        self.is_open = False
        self.is_calm = False
        self.network = Network(scene.clock, self._source("links"))
        self.notes = HandOuts(scene.logbook)
        self.clients = QueueClients(scene, self._source("queue clients"))
        self.apis: list[ApiProcess] = []
        self.workers: list[PullWorker] = []
        self._listeners: list[Listener] = []
        self._around = PullEnvironment(
            scene=scene, notes=self.notes, apis=self.apis, is_calm=lambda: self.is_calm
        )
        self._numbers = 0
        self._restore_time: Callable[[], None] = lambda: None

    def _source(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")

    def open(self) -> None:
        """From now on there are queues."""
        self.is_open = True
        self._restore_time = keep_virtual_time(self._scene.clock)
        for _ in range(self._random.randint(1, 2)):
            self.start_api()
        for tenant_id in TENANTS:
            for _ in range(self._random.randint(1, 3)):
                self.start_worker(tenant_id)

    def serve(
        self, http: Dispatcher, line: Line, machine: Machine, name: str
    ) -> tuple[Dispatcher, Listener]:
        """The dispatcher of a shard, and where its links arrive."""
        queues = noted(QueueDispatcher(machine), self.notes)
        listener = Listener(
            self.network, queues, line, machine, self._source(f"{name} key").randbytes(32)
        )
        self._listeners.append(listener)
        return Dispatchers(http, queues), listener

    def start_api(self) -> ApiProcess:
        self._numbers += 1
        name = f"api-{self._numbers}"
        api = ApiProcess(self._scene, self.network, name, self._source(name))
        self.apis.append(api)
        return api

    def start_worker(self, tenant_id: UUID | None = None, *, is_steady: bool = False) -> PullWorker:
        """Starts a worker; one that is steady takes runs of every queue."""
        self._numbers += 1
        random = self._source(f"worker {self._numbers}")
        served = [queue for queue in self.clients.queues if not queue.startswith(UNSERVED)]
        queues = sorted(random.sample(served, random.randint(1, len(served))))
        if is_steady or random.random() < 0.2:
            queues = list(self.clients.queues)
        manner = Manner(
            name=f"worker-{self._numbers}",
            tenant_id=tenant_id or random.choice(TENANTS),
            queues=tuple(queues),
            room=random.choice((1, 2, 5, 20)),
            lease_us=random.choice(LEASES_US),
            is_streaming=random.random() < 0.6,
        )
        worker = PullWorker(self._around, manner, random)
        self.workers.append(worker)
        return worker

    def heal(self) -> None:
        """Nothing is broken any more, and there are workers for every queue."""
        if not self.is_open:
            return
        self.is_calm = True
        self.network.heal()
        for api in self.apis:
            api.loss = 0.0
            if api.is_alive:
                api.line.mend()
                api.machine.thaw()
            for stream in api.streams.values():
                stream.let_go()
        for worker in self.workers:
            if not worker.machine.is_dead:
                worker.machine.thaw()
        if not any(api.is_alive for api in self.apis):
            self.start_api()
        for tenant_id in TENANTS:
            self.start_worker(tenant_id, is_steady=True)

    def check_alive(self) -> None:
        """Raises what somebody has died of by itself."""
        for api in self.apis:
            api.check()
        for worker in self.workers:
            worker.check()
        for listener in self._listeners:
            for error in listener.errors:
                raise error

    def note_offers(self) -> None:
        """Notes what workers have offered until now."""
        for worker in self.workers:
            worker.stop_offering()

    def end(self) -> None:
        """Everybody dies."""
        for worker in self.workers:
            worker.die(is_known=False)
        for api in self.apis:
            api.die(is_known=False)
        self._restore_time()
