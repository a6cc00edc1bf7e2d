"""Maps connection errors to transport failures.

Invariant: every exception maps to one `TransportFailure`. Its text reveals nothing about our
network, in particular no addresses.
"""

import os
import ssl

from wheelsched.core.outcome import TransportFailure
from wheelsched.delivery.http.response import Answer
from wheelsched.errors import AddressForbidden


def explain_failure(error: Exception) -> Answer:
    """The failure that takes the place of a response."""
    match error:
        case AddressForbidden():
            return Answer(status=TransportFailure.FORBIDDEN_ADDRESS)
        case ssl.SSLCertVerificationError():
            return _unreached(f"certificate not trusted: {error.verify_message}")
        case ssl.SSLError():
            return _unreached(f"TLS failed: {error.reason or 'handshake error'}")
        case OSError():
            return _unreached(_describe(error))
        case _:
            return _unreached(type(error).__name__)


def _unreached(detail: str) -> Answer:
    return Answer(status=TransportFailure.NO_CONNECTION, detail=detail)


def _describe(error: OSError) -> str:
    """The meaning of a system error. Its own text may contain addresses."""
    if isinstance(error.errno, int) and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or ""
