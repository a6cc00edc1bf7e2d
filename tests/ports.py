"""Ports for the tests: on the loopback, open to callbacks, and held for as long as they are needed.

Callbacks may not go to the ports of well-known services, and the kernel may hand out one of those.
A port that was only looked up can be taken by another process before it is used; one that is held
by a socket cannot.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from wheelsched.core.targets.egress import LOOPBACK, read_rules
from wheelsched.core.targets.target import check_url
from wheelsched.errors import TargetForbidden

HOST = "127.0.0.1"
LOOPBACK_IS_OPEN = read_rules(LOOPBACK)


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def is_refused(port: int) -> bool:
    """Whether the egress rules refuse a port, whatever its address."""
    try:
        check_url(f"http://{HOST}:{port}/", LOOPBACK_IS_OPEN)
    except TargetForbidden:
        return True
    return False


def bound_socket() -> socket.socket:
    """A socket on a port that callbacks may go to. A server can take it over, or it can listen."""
    with ExitStack() as refused:  # held until another one is found: the kernel gives it only once
        while True:
            bound = socket.socket()
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((HOST, 0))
            if not is_refused(port_of(bound)):
                return bound
            refused.enter_context(bound)


def listening_socket() -> socket.socket:
    """A socket that accepts connections on a port that callbacks may go to."""
    bound = bound_socket()
    bound.listen()
    return bound


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port on which nobody listens but a server that the test itself starts there, now or later.

    A socket holds it and does not listen: connections to it are refused, the kernel gives it to
    nobody else, and a server can still bind it, because servers set SO_REUSEADDR.
    """
    with bound_socket() as bound:
        yield port_of(bound)
