import asyncio
import socket
from collections.abc import Iterable
from uuid import UUID

import pytest

from wheelsched.delivery.http.dns_cache import DnsCache
from wheelsched.delivery.http.lookup import Addresses

FIRST, SECOND, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)


class Counting:
    """A lookup that the test completes. Hosts named `hanging` never complete."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.wakes = asyncio.Event()  # what hangs
        self.error: OSError | None = None

    async def resolve(self, host: str) -> Addresses:
        self.asked.append(host)
        if host.startswith("hanging"):
            await self.wakes.wait()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 7)),
        ]

    async def close(self) -> None:
        pass


class Register:
    """A `DnsCache`, with helpers for the tests."""

    def __init__(self, *, most: int = 16, timeout_ms: int = 60_000) -> None:
        self.lookup = Counting()
        self.names = DnsCache(self.lookup, most=most, timeout_ms=timeout_ms)

    async def resolve(self, host: str, tenant_id: UUID = FIRST) -> Addresses:
        return await self.names.resolve(tenant_id, host, 443)

    async def begin(
        self, hosts: Iterable[str], tenant_id: UUID = FIRST
    ) -> list[asyncio.Task[Addresses]]:
        asking = [asyncio.create_task(self.resolve(host, tenant_id)) for host in hosts]
        await self.turn()
        return asking

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def hanging(count: int, of: str = "a") -> list[str]:
    return [f"hanging-{number}.{of}.example" for number in range(count)]


async def give_up(asking: list[asyncio.Task[Addresses]]) -> None:
    for each in asking:
        each.cancel()
    await asyncio.wait(asking)


@pytest.fixture
async def register() -> Register:
    return Register()


async def test_a_burst_asks_once(register: Register) -> None:
    register.lookup.may_answer.clear()
    asking = await register.begin(["example.org"] * 5)
    other = await register.begin(["example.org", "example.com"], SECOND)
    await give_up([asking.pop(0)])  # the others wait on
    register.lookup.may_answer.set()
    for found in await asyncio.gather(*asking, *other):
        assert [address[4] for address in found] == [("192.0.2.1", 443), ("2001:db8::1", 443, 0, 7)]
    assert sorted(register.lookup.asked) == ["example.com", "example.org"]


async def test_one_lookup_serves_every_port(register: Register) -> None:
    for port in (80, 443):
        found = await register.names.resolve(FIRST, "example.org", port)
        assert found[0][4] == ("192.0.2.1", port)
    assert register.lookup.asked == ["example.org"]


async def test_an_answer_is_kept_for_a_while(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register.resolve("example.org")
    await register.resolve("example.org", SECOND)
    assert len(register.lookup.asked) == 1
    monkeypatch.setattr("wheelsched.delivery.http.dns_cache.KEPT_S", 0)
    await register.resolve("example.com")
    await register.resolve("example.com")
    assert len(register.lookup.asked) == 3


async def test_a_failure_is_kept_for_a_shorter_while(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register.lookup.error = OSError("no such name")
    monkeypatch.setattr("wheelsched.delivery.http.dns_cache.KEPT_S", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="no such name"):
            await register.resolve("example.org")
    assert len(register.lookup.asked) == 1
    monkeypatch.setattr("wheelsched.delivery.http.dns_cache.FAILURE_KEPT_S", 0)
    with pytest.raises(OSError, match="no such name"):
        await register.resolve("example.com")
    register.lookup.error = None
    assert await register.resolve("example.com")


async def test_no_more_is_kept_than_the_bound(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelsched.delivery.http.dns_cache.MAX_KEPT", 2)
    for host in ("a.example", "b.example", "c.example", "b.example", "c.example", "a.example"):
        await register.resolve(host)
    assert register.lookup.asked == ["a.example", "b.example", "c.example", "a.example"]


async def test_a_hanging_lookup_fails_at_the_timeout() -> None:
    register = Register(timeout_ms=10)
    for _ in range(2):  # the second time without waiting
        with pytest.raises(OSError, match=r"lookup of hanging\.example") as caught:
            await register.resolve("hanging.example")
        assert not isinstance(caught.value, TimeoutError)
    assert register.lookup.asked == ["hanging.example"]
    register.lookup.wakes.set()
    await register.turn()
    assert await register.resolve("hanging.example")


async def test_names_that_hang_leave_room_for_those_of_others(register: Register) -> None:
    """Of 16 lookups, the first tenant gets a quarter, and the next a quarter of the rest."""
    held = await register.begin(hanging(100))
    assert len(register.lookup.asked) == 3
    held += await register.begin(hanging(100, "b"), SECOND)
    assert len(register.lookup.asked) == 5
    for number in range(30):
        assert await register.resolve(f"{number}.example", THIRD)
    await give_up(held)
    assert len(register.lookup.asked) == 35  # and what nobody waits for is not asked


async def test_at_the_bound_tenants_take_turns() -> None:
    register = Register(most=1)
    register.lookup.may_answer.clear()
    asking = await register.begin(["a.example", "b.example", "c.example"])
    asking += await register.begin(["d.example"], SECOND)
    register.lookup.may_answer.set()
    await asyncio.gather(*asking)
    assert register.lookup.asked == ["a.example", "b.example", "d.example", "c.example"]


async def test_a_name_that_waits_behind_those_that_hang_is_looked_up_for_another() -> None:
    register = Register(most=8)
    held = await register.begin([*hanging(10), "shared.example"])
    assert "shared.example" not in register.lookup.asked
    assert await register.resolve("shared.example", SECOND)
    assert (await held.pop())[0][4] == ("192.0.2.1", 443)
    await give_up(held)


async def test_an_abandoned_lookup_counts_until_it_ends(register: Register) -> None:
    await give_up(await register.begin(hanging(100)))
    assert len(register.lookup.asked) == 3
    waiting = await register.begin(["good.example"])
    assert not waiting[0].done()
    register.lookup.wakes.set()
    await waiting[0]
    await register.turn()
    assert not register.names._tenants


async def test_closing_ends_running_and_waiting_lookups(register: Register) -> None:
    held = await register.begin(hanging(10))
    await register.names.close()
    await asyncio.wait(held, timeout=60)
    assert all(each.cancelled() for each in held)
