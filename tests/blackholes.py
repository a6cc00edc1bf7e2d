"""Addresses behind which nothing answers.

Invariant: nothing is refused there either. Who waits for an answer waits for ever.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.ports import HOST, bound_socket, listening_socket, port_of


@contextmanager
def silent_server() -> Iterator[str]:
    """An address where connections are accepted, by the kernel, and nobody reads from them."""
    with listening_socket() as listening:
        yield f"{HOST}:{port_of(listening)}"


@contextmanager
def unreachable_server() -> Iterator[str]:
    """An address where connections are not even accepted: every place in the queue is taken."""
    with ExitStack() as held:
        bound = held.enter_context(bound_socket())
        bound.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((HOST, port_of(bound)))
        yield f"{HOST}:{port_of(bound)}"
