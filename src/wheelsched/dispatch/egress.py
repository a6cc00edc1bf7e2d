"""The egress guard: no socket is opened to an address that callbacks may not go to.

Invariant: every address that is connected to was checked here, by the very bytes that the kernel
gets. Neither a name that resolves differently the second time, nor an address written in a form
that no resolver sees, comes by another way.
"""

import socket
from ipaddress import ip_address

from aiohappyeyeballs import AddrInfoType

from wheelsched.core.egress import EgressRules, explain_forbidden
from wheelsched.errors import AddressForbidden


class EgressGuard:
    """Opens the sockets of a dialer."""

    def __init__(self, rules: EgressRules) -> None:
        self._rules = rules

    def allows(self, address: AddrInfoType) -> bool:
        """Whether callbacks may go to an address."""
        return explain_forbidden(ip_address(address[4][0]), self._rules) is None

    def open_socket(self, address: AddrInfoType) -> socket.socket:
        """A socket for one candidate, not connected yet, or `AddressForbidden`."""
        if not self.allows(address):
            raise AddressForbidden
        family, kind, protocol, _, _ = address
        return socket.socket(family, kind, protocol)
