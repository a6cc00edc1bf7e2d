"""The world of an experiment: a database, shards, an API, workers, clients, and what is broken.

Invariant: every fault that is done here is noted with its beginning and its end, by the reference's
clock; and every process that was started here is ended here.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import aiohttp
import asyncpg
import msgspec
from tests.checker.records import ClockError, Offset
from tests.faults.client import Clients, now_us
from tests.faults.clock_shim import ClockShim
from tests.faults.judge import Observation
from tests.faults.logbook import OVERDUE, UNFINISHED, Connection, Logbook, read_history
from tests.faults.processes import Api, Shard, WorkerProcess
from tests.faults.records import Records
from tests.faults.server import Server
from tests.faults.stalls import note_stalls
from tests.faults.tenants import make_tenants
from tests.faults.trespasser import Trespasser
from tests.faults.trickle import Trickle
from tests.ports import reserved_port
from tests.proxy import Proxy
from tests.waiting import WAIT_LIMIT_S

Look = Callable[[Connection], Awaitable[bool]]
QUIESCE_S = 300
POLL_S = 0.1
ASK_S = 1.0
IS_KEPT = "FAULTS_KEEP" in os.environ


class World:
    """What a scenario can see and break."""

    def __init__(self, server: Server, database: str, directory: Path, random: Random) -> None:
        self._stack = AsyncExitStack()
        self.server = server
        self.database = database
        self.random = random
        self.logbook = Logbook()
        self.shards: dict[str, Shard] = {}
        self.proxies: dict[str, Proxy] = {}
        self.shard_type = Shard
        self.shard_types: dict[str, type[Shard]] = {}  # of some of them
        self.shim: ClockShim | None = None  # of the database
        self.host_shim: ClockShim | None = None  # of the shards
        self.is_faultless = False  # nothing is broken
        self.is_direct = False  # no process needs a proxy: none of its connections is broken
        self.shard_environment: dict[str, str] = {}
        self._ended: set[str] = set()  # the shards that were ended on purpose
        self.announced: set[str] = set()  # the errors that shards are to log
        self.broken: list[str] = []  # what a scenario has seen by itself
        self.remarks: list[str] = []
        self.crowd_us: int | None = None  # from the second of a crowd to the last arrival of it
        self.again_us: int | None = None  # likewise, of the runs of a worker that is gone
        self.worker = WorkerProcess("worker", directory, self._reserve_port())
        self.other = WorkerProcess(
            "other", directory, self._reserve_port()
        )  # whose temper hurts only itself
        self.directory = directory
        self.api = Api("api", directory / "api.log", self._reserve_port())
        self._stopped = asyncio.Event()
        self._asking: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._looked_s = 0.0  # how long the latest look took

    async def open(self, shards: int) -> None:
        """Starts everything but the load."""
        await asyncio.gather(
            self._open_for_tenants(),
            *(self.start_shard(f"shard-{number + 1}") for number in range(shards)),
        )
        self._watching = [
            asyncio.create_task(self._ask_for_errors()),
            asyncio.create_task(note_stalls(self.logbook, self.server.home)),
        ]
        await self.until_owned(sum(shard.processes for shard in self.shards.values()))

    async def close(self) -> None:
        """Ends everything, however far it came."""
        self._stopped.set()
        tasks = [*self._watching, *self._asking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for program in (*self.shards.values(), self.api, self.worker, self.other):
            if program.is_running:
                await program.kill()
        await self._stack.aclose()

    @property
    def records(self) -> tuple[Records, ...]:
        """What all workers have written down."""
        return self.worker.records, self.other.records

    # The fleet.

    def _reserve_port(self) -> int:
        return self._stack.enter_context(reserved_port())

    async def start_shard(self, name: str) -> None:
        """Starts a shard, or starts it again."""
        if name not in self.shards:
            log = self.directory / f"{name}.log"
            kind = self.shard_types.get(name, self.shard_type)
            self.shards[name] = kind(name, log, self._reserve_port())
            await self._line(name)
            await self.link(self.shards[name])
        await self.shards[name].run(self._url_for(name), self.shard_environment)
        self._ended.discard(name)

    async def link(self, shard: Shard) -> None:
        """Lets the API reach a shard, where that is needed."""

    async def kill(self, name: str) -> None:
        """`kill -9` of a shard; its parent, if it has one, sees it."""
        with self.crash(name) as shard:
            await shard.kill_shard()

    @contextmanager
    def crash(self, name: str) -> Iterator[Shard]:
        """All that one program has started dies in the block, however that comes about."""
        shard = self.shards[name]
        self._ended.add(name)
        with ExitStack() as faults:
            for shard_id in shard.shard_ids[-shard.processes :]:
                faults.enter_context(self.logbook.fault("crash", shard_id))
            yield shard

    async def kill_one(self, name: str) -> None:
        """`kill -9` of one of the shards of a supervisor, which starts another instead."""
        supervisor = self.shards[name]
        before = await self._leases()
        killed_us = now_us()
        os.kill(supervisor.shard_pids[0], signal.SIGKILL)
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not (dead := before - await self._leases()):
                await asyncio.sleep(POLL_S)
        for shard_id in dead:
            self.logbook.note("crash", killed_us, shard_id)

    async def _leases(self) -> set[str]:
        connection = await self.connect()
        try:
            rows = await connection.fetch("SELECT shard_id::text FROM wheelsched.shards")
        finally:
            await connection.close()
        return {row["shard_id"] for row in rows}

    async def stop(self, name: str) -> None:
        """SIGTERM: it hands over, and goes."""
        self._ended.add(name)
        with self.logbook.fault("leave", self.shards[name].shard_id):
            code = await self.shards[name].stop()
        self.require(code == 0, f"{name} ended with {code} after SIGTERM")

    async def freeze(self, name: str, for_s: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        shard = self.shards[name]
        with self.logbook.fault("freeze", shard.shard_id):
            shard.signal_shards(signal.SIGSTOP)
            await asyncio.sleep(for_s)
            shard.signal_shards(signal.SIGCONT)

    async def lose_power(self, name: str, until: Awaitable[None]) -> None:
        """Everything of a machine stops, and its sockets stay open. It is never heard of again."""
        shard = self.shards[name]
        self._ended.add(name)
        with self.logbook.fault("freeze", shard.shard_id):
            shard.signal_all(signal.SIGSTOP)
            await until
            await shard.kill()

    async def kill_api(self) -> None:
        """`kill -9`, and a new start. For the shards it is no fault."""
        await self.api.kill()
        await self.api.run(self._url_for("api"))

    async def until_owned(self, shards: int) -> None:
        """Waits until so many shards own everything among them."""

        async def is_owned(connection: Connection) -> bool:
            found = await connection.fetchrow(
                "SELECT count(DISTINCT owner), count(*) FILTER (WHERE owner IS NULL)"
                " FROM wheelsched.partitions"
            )
            return found is not None and tuple(found) == (shards, 0)

        await self._until(is_owned)

    # The database.

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Postgres is away, and back at the end of the block."""
        with self.logbook.fault("store"):
            yield
        self.logbook.returns_us.append(now_us())

    async def connect(self) -> Connection:
        return await asyncpg.connect(self.server.url(self.database))

    async def move_clock(self, offset_us: int) -> None:
        """Sets the database's clock, from one instant to the next."""
        assert self.shim is not None
        connection = await self.connect()
        with self.logbook.fault("clock"):
            before_us = now_us()
            self.shim.set(offset_us)
            self.logbook.offsets.append(Offset(from_us=before_us, offset_us=offset_us))
            await connection.execute(
                "INSERT INTO faults.ownership (offset_us) VALUES ($1)", offset_us
            )
        await connection.close()

    # What a scenario waits for, and what it holds.

    async def until_arrived(self, count: int) -> None:
        """Waits until so many more callbacks have come to the worker."""
        records = self.worker.records
        before = records.count()
        async with asyncio.timeout(WAIT_LIMIT_S):
            while records.count() < before + count:
                await asyncio.sleep(POLL_S)

    def finally_do(self, close: Callable[[], Awaitable[None]]) -> None:
        """What a scenario holds is held until the end of its world."""
        self._stack.push_async_callback(close)

    def require(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.broken.append(otherwise)

    # The clients.

    async def trickle(self) -> None:
        """Lets clients change what is theirs from now on, and ask for what is not."""
        clients, url = self.clients.each, f"{self.worker.url}/ok"
        trickles = [Trickle(one, url, self.random, self._database_us) for one in clients]
        await asyncio.gather(*(trickle.prepare() for trickle in trickles))
        trespasser = Trespasser(clients, self.random, self._database_us)
        asking = (*(trickle.run for trickle in trickles), trespasser.run)
        self._asking = [asyncio.create_task(run(self._stopped)) for run in asking]

    # The end.

    async def heal(self) -> int:
        """Nothing is broken any more and nothing is asked for; gives the instant of that."""
        self._stopped.set()
        await asyncio.gather(*self._asking)
        for proxy in self.proxies.values():
            proxy.heal()
        await self.worker.calm()
        await self.other.calm()
        for name, shard in self.shards.items():
            is_ours = name in self._ended
            self.require(shard.is_running or is_ours, f"{name} has ended by itself")
        if not any(shard.is_running for shard in self.shards.values()):
            await self.start_shard("shard-1")
        return now_us()

    async def quiesce(self, healed_us: int) -> None:
        """Waits until everything that was due by then has come to its end."""
        until = _timestamp(self._database_us(healed_us))

        async def is_quiet(connection: Connection) -> bool:
            registry = await connection.fetchval(UNFINISHED, until)
            return not registry and not await connection.fetchval(OVERDUE, until)

        try:
            await self._until(is_quiet, QUIESCE_S)
        except TimeoutError:
            self.broken.append(f"not quiet after {QUIESCE_S} s")
        for name, shard in self.shards.items():
            if shard.is_running:
                await self.stop(name)
        for program in (self.api, self.worker, self.other):
            await program.stop()
        for name, shard in self.shards.items():
            complaints = [one for one in shard.complaints if not self._is_announced(one)]
            self.require(not complaints, f"{name}: {complaints[:1]}")

    def _is_announced(self, complaint: str) -> bool:
        return any(f'"{event}"' in complaint for event in self.announced)

    async def dump(self, healed_us: int) -> Observation:
        """The three logs, and what was seen beside them."""
        requests = self.clients.by_id()
        if unknown := sum(request.result == "unknown" for request in requests):
            self.remarks.append(f"{unknown} requests of the clients without an answer")
        if stalls_us := self.logbook.stalls_us:
            longest_s = max(stalls_us) / 1_000_000
            self.remarks.append(
                f"the machine itself stalled {len(stalls_us)} times, up to {longest_s:.1f} s"
            )
        said = (self.clients, self.records)
        history = await read_history(self.server, self.database, self.logbook, healed_us, said)
        if IS_KEPT:
            (self.directory / "history.json").write_bytes(msgspec.json.encode(history))
        return Observation(
            history=history,
            broken=tuple(self.broken),
            remarks=tuple(self.remarks),
            returns_us=tuple(self.logbook.returns_us),
            crowd_us=self.crowd_us,
            again_us=self.again_us,
            is_faultless=self.is_faultless,
        )

    async def _open_for_tenants(self) -> None:
        """The API; and by what it says, their clients and the workers that know their secrets."""
        url = await self.api.run(await self._line("api"))
        tenants = await make_tenants(url)
        self.clients = Clients(url, tenants)
        self._stack.push_async_callback(self.clients.close)
        await asyncio.gather(self.worker.run(tenants), self.other.run(tenants))

    def _database_us(self, at_us: int | None = None) -> int:
        """What the database's clock shows, now or when the reference shows `at_us`."""
        offset_us = self.logbook.offsets[-1].offset_us if self.logbook.offsets else 0
        return (now_us() if at_us is None else at_us) + offset_us

    async def _ask_for_errors(self) -> None:
        """Notes how exact the shards say that their clocks are."""
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                running = [shard for shard in self.shards.values() if shard.is_running]
                errors_us = await asyncio.gather(
                    *(shard.clock_error_us(session) for shard in running)
                )
                self.logbook.clock_errors += [
                    ClockError(at_us=now_us(), error_us=error_us)
                    for error_us in errors_us
                    if error_us is not None
                ]
                await asyncio.sleep(ASK_S)

    async def _line(self, name: str) -> str:
        """A way to the database for one process, which can be broken for it alone."""
        proxy = await self._stack.enter_async_context(Proxy(self.server.socket_path))
        self.proxies[name] = proxy
        return self._url_for(name)

    def _url_for(self, name: str) -> str:
        proxy = self.proxies[name]
        return self.server.url(self.database) if self.is_direct else proxy.url(self.database)

    async def _until(self, is_so: Look, patience_s: float = WAIT_LIMIT_S) -> None:
        """Waits until something holds in the database, which may be away meanwhile."""
        async with asyncio.timeout(patience_s):
            while not await self._sees(is_so):
                await asyncio.sleep(POLL_S + self._looked_s)  # whoever looks is not in the way

    async def _sees(self, is_so: Look) -> bool:
        try:
            connection = await self.connect()
        except (OSError, asyncpg.PostgresError):
            return False
        began_s = time.monotonic()
        try:
            return await is_so(connection)
        except (
            OSError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        ):
            return False
        finally:
            self._looked_s = time.monotonic() - began_s
            connection.terminate()


def _timestamp(instant_us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=instant_us)


@asynccontextmanager
async def new_world(
    server: Server, seed: int, make: Callable[[Server, str, Path, Random], World] = World
) -> AsyncIterator[World]:
    """A world on a database of its own."""
    database = await server.new_database()
    directory = Path(tempfile.mkdtemp(prefix="wheelsched-faults-"))
    world = make(server, database, directory, Random(seed))
    try:
        yield world
    finally:
        await world.close()
        await server.drop_database(database)
        if IS_KEPT:
            print(f"kept in {directory}: what everybody logged")
        else:
            shutil.rmtree(directory)
