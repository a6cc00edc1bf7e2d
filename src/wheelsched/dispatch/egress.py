"""Egress at the socket: the last place where a callback can be stopped.

Invariant: every address that is connected to was checked here, by the very bytes that the kernel
gets. Neither a name that resolves differently the second time, nor an address written in a form
that no resolver sees, comes by another way.
"""

import socket
from collections.abc import Collection
from ipaddress import ip_address

from aiohappyeyeballs import AddrInfoType

from wheelsched.core.egress import (
    Address,
    EgressRules,
    OwnListener,
    explain_forbidden,
    is_own,
)
from wheelsched.errors import AddressForbidden


class EgressGuard:
    """Opens the sockets of a dialer."""

    def __init__(self, rules: EgressRules) -> None:
        self._rules = rules
        self._others: Collection[OwnListener] = ()

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Keeps callbacks from these listeners too, in place of those that were told before."""
        self._others = listeners

    def allows(self, address: AddrInfoType) -> bool:
        """Whether callbacks may go to an address."""
        host, port = address[4][:2]
        to = ip_address(host)
        if explain_forbidden(to, self._rules) is not None:
            return False
        own = (*self._rules.own, *self._others)
        return not is_own(to, int(port), own, is_local)

    def open_socket(self, address: AddrInfoType) -> socket.socket:
        """A socket for one candidate, not connected yet, or `AddressForbidden`."""
        if not self.allows(address):
            raise AddressForbidden
        family, kind, protocol, _, _ = address
        return socket.socket(family, kind, protocol)


def is_local(address: Address) -> bool:
    """Whether an address is one of this machine, by asking whether a socket can have it."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True
