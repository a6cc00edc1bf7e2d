"""Why there is no connection, by the names that the history knows.

Invariant: every exception is one `TransportFailure`, and says no more of our network than the
target's owner knows: no addresses.
"""

import os
import ssl

from wheelsched.core.outcome import TransportFailure
from wheelsched.dispatch.answer import Answer
from wheelsched.errors import AddressForbidden


def explain_failure(error: Exception) -> Answer:
    """What stands in for the answer of a worker that could not be reached."""
    match error:
        case AddressForbidden():
            return Answer(status=TransportFailure.FORBIDDEN_ADDRESS)
        case ssl.SSLCertVerificationError():
            return _unreached(f"certificate not trusted: {error.verify_message}")
        case ssl.SSLError():
            return _unreached(f"no TLS: {error.reason or 'the handshake failed'}")
        case OSError():
            return _unreached(_words(error))
        case _:
            return _unreached(type(error).__name__)


def _unreached(detail: str) -> Answer:
    return Answer(status=TransportFailure.NO_CONNECTION, detail=detail)


def _words(error: OSError) -> str:
    """What an error of the system means; its own text may name addresses."""
    if isinstance(error.errno, int) and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or ""
