"""Checks every address right before a socket connects to it.

Invariant: every address that is connected to was checked here, in the form that the kernel gets.
Neither a name that resolves differently the second time nor an unusual notation can bypass it.
"""

import socket
from collections.abc import Collection
from ipaddress import ip_address

from aiohappyeyeballs import AddrInfoType

from wheelsched.core.targets.egress import (
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
        """Forbid these listeners too. This replaces the listeners of the last call."""
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
        """An unconnected socket for one address. Raises `AddressForbidden`."""
        if not self.allows(address):
            raise AddressForbidden
        family, kind, protocol, _, _ = address
        return socket.socket(family, kind, protocol)


def is_local(address: Address) -> bool:
    """Whether an address belongs to this machine. It tries to bind a socket to it."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True
