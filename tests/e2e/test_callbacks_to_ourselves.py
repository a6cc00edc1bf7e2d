"""Callbacks that call wheelsched itself, where programs of the machine need no token."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from tests.e2e.processes import eventually
from tests.ports import is_refused, listening_socket, port_of
from tests.stack import GENEROUS_S, RunningStack, running_stack

pytestmark = pytest.mark.proof  # a stack of processes

QUOTA = 7
SPELLINGS = (
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
)
ATTACKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PATCH", "/api/v1/tenants/{tenant_id}", {"job_quota": 1_000_000}),
    ("POST", "/api/v1/tokens", {"name": "mine", "scopes": ["operator"]}),
)


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    with running_stack("--shards", "2") as running:
        yield running


class Attacker:
    """A tenant with a quota, and a token that may write and read and no more."""

    def __init__(self, stack: RunningStack) -> None:
        self.stack = stack
        tenant = self.ask("POST", "/tenants", {"name": f"t{uuid4().hex}", "job_quota": QUOTA}, "")
        self.tenant_id = tenant["tenant_id"]
        asked = {"name": "weak", "scopes": ["read", "write"], "tenant_id": self.tenant_id}
        self.token = self.ask("POST", "/tokens", asked, "")["token"]

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """Without a token as the attacker; with an empty one as a program of this machine."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self.stack.url}/api/v1{path}"
        request = urllib.request.Request(
            url, data, headers | {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=GENEROUS_S) as response:
                return msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            return msgspec.json.decode(error.read())

    def attack(self, at: str, batch: int, number: int) -> dict[str, Any]:
        """Registers a job that calls there, or is refused."""
        method, path, payload = ATTACKS[number]
        url = f"http://{at}{path.format(tenant_id=self.tenant_id)}"
        target = {"url": url, "method": method, "batch": batch}
        name = f"{number} {batch} {at}"[:60].translate(str.maketrans(":[]/", "____"))
        document = {"name": name, "schedule": "every 1s", "target": target, "payload": payload}
        answer: dict[str, Any] = self.ask("POST", "/jobs", document)
        return answer

    def has_won(self) -> bool:
        tenants = self.ask("GET", "/tenants?limit=100", None, "")["items"]
        quotas = {each["tenant_id"]: each["job_quota"] for each in tenants}
        tokens = self.ask("GET", "/tokens?limit=100", None, "")["items"]
        return quotas[self.tenant_id] != QUOTA or "mine" in {each["name"] for each in tokens}


@pytest.mark.parametrize("at", SPELLINGS)
def test_the_api_is_not_a_valid_target_in_any_spelling(stack: RunningStack, at: str) -> None:
    attacker = Attacker(stack)
    port = urlsplit(stack.url).port
    for number in range(len(ATTACKS)):
        refused = attacker.attack(f"{at}:{port}", 1, number)
        assert refused["status"] == 422
        assert "wheelsched itself listens on" in refused["errors"][0]["detail"]
    assert not attacker.has_won()


def test_the_metrics_of_the_shards_are_not_valid_targets(stack: RunningStack) -> None:
    attacker = Attacker(stack)
    shards = attacker.ask("GET", "/shards", None, "")["items"]
    assert len(shards) == 2
    for number, shard in enumerate(shards):
        assert_no_target(attacker, urlsplit(shard["address"]).netloc, number)


def test_the_links_of_the_shards_are_not_valid_targets(stack: RunningStack) -> None:
    addresses = asyncio.run(link_addresses(stack.database_url))
    assert len(addresses) == 2
    for number, address in enumerate(addresses):
        assert_no_target(Attacker(stack), address, number)


async def link_addresses(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT link_address FROM wheelsched.shards")
    await connection.close()
    return [row["link_address"] for row in rows]


def assert_no_target(attacker: Attacker, address: str, number: int) -> None:
    """No shard calls a listener of a shard."""
    job = attacker.attack(address, 1, number)
    if is_refused(int(address.rpartition(":")[2])):  # as that of another service
        assert job["status"] == 422
        return
    (run,) = dead_runs(attacker, job["job_id"])
    # By the shard that owns the job: its own listener, or that of its neighbour.
    by_url, by_address = "wheelsched itself listens on", "the target's address is not allowed"
    assert by_url in run["error"] or by_address in run["error"]


@pytest.mark.parametrize("batch", [1, 5])
def test_a_callback_that_comes_by_a_detour_changes_nothing(stack: RunningStack, batch: int) -> None:
    attacker = Attacker(stack)
    with relay(stack) as port:
        for number in range(len(ATTACKS)):
            job = attacker.attack(f"127.0.0.1:{port}", batch, number)
            (run,) = dead_runs(attacker, job["job_id"])
            assert run["http_status"] == 403
            assert "a job's callback must not call wheelsched itself" in run["error"]
    assert not attacker.has_won()


def dead_runs(attacker: Attacker, job_id: str) -> list[dict[str, Any]]:
    """The first run of a job, when it is dead; the job is then deleted."""
    found: list[dict[str, Any]] = []

    def has_died() -> bool:
        runs = attacker.ask("GET", f"/jobs/{job_id}/runs")["items"]
        found[:] = [run for run in runs if run["state"] == "dead"][-1:]
        assert "succeeded" not in {run["state"] for run in runs}
        return bool(found)

    eventually(has_died)
    attacker.ask("DELETE", f"/jobs/{job_id}")
    return found


@contextmanager
def relay(stack: RunningStack) -> Iterator[int]:
    """Passes on whatever comes to a port to the API, as a tunnel would."""
    there = urlsplit(stack.url)
    server = listening_socket()
    opened = [server]

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(65_536):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection((there.hostname, there.port), timeout=GENEROUS_S)
                opened.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield port_of(server)
    finally:
        for one in opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it
            one.close()
