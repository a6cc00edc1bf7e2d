"""The ports that tests use: callbacks may go there, and nobody else can take them."""

import socket
from contextlib import closing

import pytest
from tests import ports
from tests.ports import HOST, bound_socket, is_refused, listening_socket, port_of, reserved_port


def test_ports_of_other_services_are_refused() -> None:
    assert is_refused(27017)
    assert not is_refused(40_000)


def test_a_refused_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def refuse_two(port: int) -> bool:
        seen.append(port)
        return len(seen) <= 2

    monkeypatch.setattr(ports, "is_refused", refuse_two)
    with bound_socket() as bound:
        assert port_of(bound) == seen[2]
    assert len(set(seen)) == 3


def test_a_reserved_port_refuses_connections_and_lets_one_server_listen() -> None:
    with reserved_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), timeout=60)
        for _ in range(2):  # also again, after a restart
            with socket.create_server((HOST, port)) as server:
                with closing(socket.create_connection((HOST, port), timeout=60)):
                    server.accept()[0].close()
                with pytest.raises(OSError, match="in use"):
                    socket.create_server((HOST, port)).close()


def test_a_reserved_port_is_not_given_out_again() -> None:
    with (
        reserved_port() as port,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind((HOST, port))


def test_a_listening_socket_accepts() -> None:
    with (
        listening_socket() as server,
        closing(socket.create_connection((HOST, port_of(server)), timeout=60)),
    ):
        server.accept()[0].close()
