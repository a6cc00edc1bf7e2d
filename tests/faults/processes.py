"""The processes of an experiment: shards and the API by their command line, and workers."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import aiohttp
import msgspec
from tests.e2e.processes import children_of, is_over
from tests.faults.records import Records
from tests.faults.tenants import Tenant
from tests.stack import PROGRAM, clean_environment
from tests.waiting import WAIT_LIMIT_S

POLL_S = 0.02
CLOCK_ERROR = re.compile(r"^wheelsched_clock_error_seconds (\S+)$", re.MULTILINE)
WORKER = Path(__file__).with_name("worker.py")


class Program:
    """One process, and the file that it logs to."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment() | environment,
            )

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        assert self._process is not None
        if self.is_running:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self._process.wait()

    def events(self, event: str) -> list[dict[str, object]]:
        """The lines of its log about an event."""
        named = b'"' + event.encode() + b'"'
        return [
            msgspec.json.decode(line, type=dict[str, object])
            for line in self.log.read_bytes().splitlines()
            if named in line
        ]

    @property
    def complaints(self) -> list[str]:
        """What it logged that no fault should bring about: errors without a name."""
        return [
            line
            for line in self.log.read_text().splitlines()
            if line.startswith("Traceback") or '"level": "error"' in line
        ]

    async def until_logged(self, event: str, count: int = 1) -> dict[str, object]:
        """The latest line about an event, once there are so many."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(found := self.events(event)) < count:
                assert self.is_running, f"{self.name} ended: {self.log.read_text()[-2000:]}"
                await asyncio.sleep(POLL_S)
        return found[-1]

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has ever had."""
        return self._peak_of(self.pid)

    def _peak_of(self, pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


class Listening(Program):
    """A process that listens on one port of the loopback, which it keeps when it starts again."""

    def __init__(self, name: str, log: Path, port: int) -> None:
        super().__init__(name, log)
        self.port = port


class Shard(Listening):
    """`wheelsched shard`, or a program that stands in for it: a parent, and the shard itself."""

    command: tuple[str, ...] = (*PROGRAM, "shard")
    options: tuple[str, ...] = ()
    processes = 1  # that are shards

    @property
    def shard_pids(self) -> list[int]:
        """The processes that are shards: the children of who was started, or itself."""
        return children_of(self.pid) or [self.pid]

    @property
    def pids(self) -> list[int]:
        return [self.pid, *children_of(self.pid)]

    @property
    def peak_bytes(self) -> int:
        return max(map(self._peak_of, self.shard_pids))

    async def run(self, database_url: str, environment: dict[str, str]) -> None:
        """Starts it, and waits until it has joined."""
        options = ("--database-url", database_url, "--egress-allow", "127.0.0.0/8", *self.options)
        before = len(self.events("shard.joined")) if self.log.exists() else 0
        probe = ("--probe", f"127.0.0.1:{self.port}")
        await self.start([*self.command, *options, *probe], environment)
        await self.until_logged("shard.joined", before + self.processes)

    def signal_shards(self, number: signal.Signals) -> None:
        """To the shards, and not to their parent."""
        for pid in self.shard_pids:
            os.kill(pid, number)

    def signal_all(self, number: signal.Signals) -> None:
        """To everybody, as a container or a machine does it."""
        for pid in self.pids:
            os.kill(pid, number)

    async def kill(self) -> None:
        """Everybody, and at once."""
        pids = self.pids
        if self.is_running:
            self.signal_all(signal.SIGKILL)
        await self.until_gone(pids)

    async def kill_shard(self) -> None:
        """The shard, which is the only one; its parent ends as it did."""
        pids = self.pids
        self.signal_shards(signal.SIGKILL)
        await self.until_gone(pids)

    async def kill_parent(self) -> None:
        """Who was started; its shards notice."""
        pids = self.pids
        self.signal(signal.SIGKILL)
        await self.until_gone(pids)

    async def until_gone(self, pids: Sequence[int]) -> None:
        """Returns when none of these is left."""
        await self.ended()
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not is_over(pids):
                await asyncio.sleep(POLL_S)

    async def clock_error_us(self, session: aiohttp.ClientSession) -> int | None:
        """How far off its idea of the database's clock may be, as it says itself."""
        try:
            async with session.get(f"http://127.0.0.1:{self.port}/metrics") as response:
                found = CLOCK_ERROR.search(await response.text())
        except (aiohttp.ClientError, TimeoutError):
            return None  # frozen, or gone
        return None if found is None else int(float(found[1]) * 1_000_000)

    @property
    def shard_id(self) -> str:
        """As which it joined last."""
        return self.shard_ids[-1]

    @property
    def shard_ids(self) -> list[str]:
        """As which its processes have joined."""
        return [str(event["shard"]) for event in self.events("shard.joined")]


class LoneShard(Shard):
    """A shard without a parent: only its connections tell that it has died."""

    options = ("--no-parent",)


class Supervisor(Shard):
    """Several shards, which their parent starts again."""

    options = ("--processes", "2")
    processes = 2


class Api(Listening):
    """`wheelsched api`."""

    _starts = 0

    async def run(self, database_url: str) -> str:
        self._starts += 1
        options = ("--database-url", database_url, "--egress-allow", "127.0.0.0/8")
        listen = ("--listen", f"127.0.0.1:{self.port}")
        await self.start([*PROGRAM, "api", *listen, *options], {})
        return str((await self.until_logged("api.listening", self._starts))["url"])


class WorkerProcess(Listening):
    """A worker, and what it writes down."""

    def __init__(self, name: str, directory: Path, port: int) -> None:
        super().__init__(name, directory / f"{name}.log", port)
        self._path = directory / f"{name}.records"
        self.records = Records(self._path)
        self.url = f"http://127.0.0.1:{port}"

    async def run(self, tenants: Iterable[Tenant]) -> None:
        secrets = [f"{tenant.tenant_id}={tenant.secret}" for tenant in tenants]
        arguments = (str(self._path), str(self.port), *secrets)
        await self.start([sys.executable, str(WORKER), *arguments], {})
        async with asyncio.timeout(WAIT_LIMIT_S):
            while "listening" not in self.log.read_text():
                await asyncio.sleep(POLL_S)

    async def calm(self) -> None:
        """From now on it answers everything, and what it held."""
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/calm"):
            pass

    async def until_received(self, path: str, count: int = 1) -> None:
        """Waits until so many callbacks have come to a path."""
        wanted = f'"url":"{self.url}{path}"'.encode()
        async with asyncio.timeout(WAIT_LIMIT_S):
            while self.records.count(wanted) < count:
                await asyncio.sleep(POLL_S)
