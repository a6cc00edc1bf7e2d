import socket

import pytest

from wheelsched.core.egress import read_rules
from wheelsched.dispatch.egress import EgressGuard
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
    assert str(caught.value) == "callbacks may not go to this address"


def test_an_allowed_network_is_open() -> None:
    guard = EgressGuard(read_rules(["10.20.0.0/16"]))
    guard.open_socket(candidate("10.20.0.1")).close()
    with pytest.raises(AddressForbidden):
        guard.open_socket(candidate("10.21.0.1"))
