import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.delivery.http.test_connection import OK, Wire

from wheelsched.config import DispatchConfig
from wheelsched.core.model import HttpTarget
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.delivery.http.connection import Connection
from wheelsched.delivery.http.pool import Pool
from wheelsched.delivery.http.route import HttpRoute, RouteTable

FIRST, SECOND = UUID(int=1), UUID(int=2)


def route(host: str, tenant_id: UUID = FIRST) -> HttpRoute:
    return RouteTable(NO_EXCEPTIONS).get(tenant_id, HttpTarget(url=f"http://{host}/"))


class Exchange:
    """A pool whose connections are opened when `may_connect` is set."""

    def __init__(self, connections: int = 4, per_host: int = 2) -> None:
        self.loop = asyncio.get_running_loop()
        config = DispatchConfig(connections=connections, connections_per_host=per_host)
        self.pool = Pool(config, self.dial)
        self.dialled: list[str] = []
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        self.error: OSError | None = None

    async def dial(self, route: HttpRoute, make: Callable[[], Connection]) -> Connection:
        self.dialled.append(route.endpoint.host)
        await self.may_connect.wait()
        if self.error is not None:
            raise self.error
        connection = make()
        connection.connection_made(Wire())
        self.loop.call_soon(connection.lost.set_result, None)
        return connection

    async def open(
        self, host: str = "a", *, tenant_id: UUID = FIRST, within_s: float = 60
    ) -> Connection:
        deadline_s = self.loop.time() + within_s
        connection = await self.pool.open(route(host, tenant_id), deadline_s)
        connection.ask(b"request", 1_000, deadline_s, lambda answer: answer)
        return connection

    def opening(self, host: str = "a", tenant_id: UUID = FIRST) -> asyncio.Task[Connection]:
        return self.loop.create_task(self.open(host, tenant_id=tenant_id))

    async def turn(self) -> None:
        """Run all ready tasks."""
        for _ in range(10):
            turned = self.loop.create_future()
            self.loop.call_soon(turned.set_result, None)
            await turned


def answer(connection: Connection) -> None:
    connection.data_received(OK)


@pytest.fixture
async def exchange() -> Exchange:
    return Exchange()


async def test_idle_connections_are_reused_the_last_first(exchange: Exchange) -> None:
    first, second = await exchange.open(), await exchange.open()
    assert exchange.pool.take(route("a")) is None
    answer(first)
    answer(second)
    assert exchange.pool.take(route("b")) is None
    assert exchange.pool.take(route("a")) is second
    assert exchange.pool.take(route("a")) is first
    assert exchange.pool.take(route("a")) is None
    assert first.is_reused
    assert second.is_reused


async def test_at_the_bound_of_a_host_the_first_to_wait_is_the_first_served(
    exchange: Exchange,
) -> None:
    first, second = await exchange.open(), await exchange.open()
    waiting = [exchange.opening() for _ in range(3)]
    await exchange.turn()
    assert len(exchange.pool) == 2
    answer(first)
    await exchange.turn()
    assert [each.done() for each in waiting] == [True, False, False]
    assert waiting[0].result() is first
    second.end()  # its place goes to the next
    await exchange.turn()
    assert [each.done() for each in waiting] == [True, True, False]
    assert exchange.dialled == ["a", "a", "a"]
    answer(waiting[1].result())
    await exchange.turn()
    assert waiting[2].result() is waiting[1].result()
    assert len(exchange.pool) == 2


async def test_no_tenant_stands_in_the_way_of_another_at_the_same_host(exchange: Exchange) -> None:
    held = [await exchange.open(), await exchange.open()]
    waiting = exchange.opening()
    await exchange.turn()
    assert not waiting.done()
    other = await exchange.open(tenant_id=SECOND)
    answer(other)
    await exchange.turn()
    assert not waiting.done()  # nor does one get what another has opened
    assert exchange.pool.take(route("a")) is None
    assert exchange.pool.take(route("a", SECOND)) is other
    answer(held[0])
    await exchange.turn()
    assert waiting.result() is held[0]


async def test_at_the_bound_in_all_places_go_to_the_tenants_in_turn(exchange: Exchange) -> None:
    held = [await exchange.open(host) for host in "abcd"]
    waiting = [exchange.opening("a") for _ in range(2)]
    await exchange.turn()
    other = exchange.opening("a", SECOND)
    await exchange.turn()
    held[1].end()
    held[2].end()
    await exchange.turn()
    assert [each.done() for each in (*waiting, other)] == [True, False, True]


async def test_at_the_bound_in_all_the_longest_at_rest_makes_room(exchange: Exchange) -> None:
    opened = [await exchange.open(host) for host in "aabb"]
    for connection in opened:
        answer(connection)
    newest = await exchange.open("c")
    assert [connection.is_open for connection in opened] == [False, True, True, True]
    assert newest.is_open
    assert len(exchange.pool) == 4


async def test_at_the_bound_in_all_places_go_to_the_hosts_in_turn(exchange: Exchange) -> None:
    opened = [await exchange.open(host) for host in "aabb"]
    waiting = [exchange.opening(host) for host in "accd"]
    await exchange.turn()
    assert len(exchange.pool) == 4
    for connection in opened[:3]:  # "a" waits at its own bound, the others for a place
        answer(connection)
        await exchange.turn()
    assert exchange.dialled[4:] == ["c", "d", "a"]
    assert [each.done() for each in waiting] == [True, True, False, True]
    answer(opened[3])
    await exchange.turn()
    assert waiting[2].done()
    assert len(exchange.pool) == 4


async def test_a_fresh_connection_takes_the_place_of_one_at_rest(exchange: Exchange) -> None:
    exchange = Exchange(connections=1, per_host=1)
    first = await exchange.open()
    answer(first)
    second = await exchange.open()
    assert not first.is_open
    answer(second)
    assert exchange.pool.take(route("a")) is second


async def test_a_connection_that_cannot_be_opened_gives_its_place_back(exchange: Exchange) -> None:
    exchange.error = ConnectionRefusedError()
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError):
            await exchange.open()
    assert len(exchange.pool) == 0


@pytest.mark.parametrize("says", [b"timeout=5", b"timeout=1"])
async def test_a_connection_that_its_worker_will_close_is_not_kept_idle(
    exchange: Exchange, says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await exchange.open()
    watched_s: list[float] = []
    monkeypatch.setattr(connection, "watch", watched_s.append)
    now_s = exchange.loop.time()
    connection.data_received(OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: " + says + b"\r\n\r\n"))
    if says == b"timeout=1":
        assert not connection.is_open
        assert len(exchange.pool) == 0
    else:
        assert 4 <= watched_s[0] - now_s <= exchange.loop.time() - now_s + 4


async def test_an_ended_connection_is_not_kept_idle(exchange: Exchange) -> None:
    connection = await exchange.open()
    connection.end()
    exchange.pool.release(connection)
    assert exchange.pool.take(route("a")) is None
    assert len(exchange.pool) == 0


async def test_a_request_without_a_slot_times_out_at_the_deadline(exchange: Exchange) -> None:
    first, _ = await exchange.open(), await exchange.open()
    with pytest.raises(TimeoutError):
        await exchange.open(within_s=-1)
    answer(first)
    assert exchange.pool.take(route("a")) is first


@pytest.mark.parametrize("hosts", ["aa", "abbc"], ids=["of the host", "in all"])
@pytest.mark.parametrize("is_served", [False, True])
async def test_a_cancelled_request_leaves_nothing_behind(
    exchange: Exchange, hosts: str, is_served: bool
) -> None:
    opened = [await exchange.open(host) for host in hosts]
    gives_up, waits = exchange.opening("a" if hosts == "aa" else "d"), exchange.opening(hosts[0])
    await exchange.turn()
    if is_served:  # and does not know yet
        answer(opened[0])
    gives_up.cancel()
    await exchange.turn()
    for connection in opened:
        if connection.is_open and not connection.is_reused:
            answer(connection)
    await exchange.turn()
    assert gives_up.cancelled()
    assert waits.done()
    answer(await waits)
    for host in "abcd":
        while (resting := exchange.pool.take(route(host))) is not None:
            resting.end()
    assert len(exchange.pool) == 0
    assert not exchange.pool._hosts


async def test_a_host_without_slots_is_dropped_with_its_last_waiter(exchange: Exchange) -> None:
    for host in "aabb":
        await exchange.open(host)
    gives_up = exchange.opening("c")
    await exchange.turn()
    gives_up.cancel()
    await exchange.turn()
    assert len(exchange.pool._hosts) == 2


@pytest.mark.parametrize("frees", [answer, Connection.end])
async def test_a_cancelled_request_is_skipped(
    exchange: Exchange, frees: Callable[[Connection], None]
) -> None:
    first, _ = await exchange.open(), await exchange.open()
    gives_up, waits = exchange.opening(), exchange.opening()
    await exchange.turn()
    gives_up.cancel()  # and has no turn to say so before the next is served
    frees(first)
    await exchange.turn()
    assert gives_up.cancelled()
    assert waits.done()
    assert len(exchange.pool) == 2


async def test_closing_ends_open_opening_and_waiting_connections(exchange: Exchange) -> None:
    in_use, resting = await exchange.open(), await exchange.open("b")
    answer(resting)
    exchange.may_connect.clear()
    openings = [exchange.opening("a"), exchange.opening("a"), exchange.opening("b")]
    await exchange.turn()
    await exchange.pool.close()
    assert not in_use.is_open
    assert not resting.is_open
    for opening in openings:
        with pytest.raises(TimeoutError):
            await opening
    assert len(exchange.pool) == 0
    with pytest.raises(ConnectionAbortedError):
        await exchange.open()
