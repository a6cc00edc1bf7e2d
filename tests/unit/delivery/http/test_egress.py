import socket

import pytest
from msgspec.structs import replace

from wheelsched.core.targets.egress import LOOPBACK, OwnListener, read_rules
from wheelsched.delivery.http.egress import EgressGuard
from wheelsched.errors import AddressForbidden


def candidate(address: str) -> tuple[int, int, int, str, tuple[str, int]]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 443)


def test_a_public_address_gets_a_socket() -> None:
    with EgressGuard(read_rules([])).open_socket(candidate("1.1.1.1")) as opened:
        assert opened.family == socket.AF_INET
        assert opened.type == socket.SOCK_STREAM


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1%1", "ff02::1"]
)
def test_an_address_of_the_inside_gets_none(address: str) -> None:
    with pytest.raises(AddressForbidden) as caught:
        EgressGuard(read_rules([])).open_socket(candidate(address))
    assert isinstance(caught.value, OSError)
    assert str(caught.value) == "callbacks to this address are not allowed"


def test_an_allowed_network_is_open() -> None:
    guard = EgressGuard(read_rules(["10.20.0.0/16"]))
    guard.open_socket(candidate("10.20.0.1")).close()
    with pytest.raises(AddressForbidden):
        guard.open_socket(candidate("10.21.0.1"))


def at(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    return (*candidate(address)[:4], (address, port))


OPEN = read_rules([*LOOPBACK, "10.0.0.0/8"])


def guarded(address: str | None, port: int = 8420) -> EgressGuard:
    return EgressGuard(replace(OPEN, own=(OwnListener(address, port),)))


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1"])
def test_a_listener_of_our_own_gets_no_socket(address: str) -> None:
    guard = guarded("127.0.0.1")
    assert not guard.allows(at(address, 8420))
    assert guard.allows(at(address, 8421))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_a_listener_on_every_address_is_refused_on_each(address: str) -> None:
    guard = guarded(None)
    assert not guard.allows(at(address, 8420))
    assert guard.allows(at(address, 8421))


def test_a_listener_on_every_address_is_of_this_machine_alone() -> None:
    assert guarded(None).allows(at("10.255.255.254", 8420))


def test_listeners_of_other_shards_are_refused_while_they_are_known() -> None:
    guard = EgressGuard(OPEN)
    guard.avoid([OwnListener("10.0.0.7", 9100)])
    assert not guard.allows(at("10.0.0.7", 9100))
    guard.avoid([])
    assert guard.allows(at("10.0.0.7", 9100))
