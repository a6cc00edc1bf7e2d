"""Verification for code that serves callbacks itself, in any framework, without a `Worker`.

Invariant: a run that is returned was signed with one of the secrets, and every field of it but
`traceparent` is covered by a signature.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import asdict

from wheelsched.clock import SystemClock
from wheelsched.core.duration import SECOND
from wheelsched.errors import InvalidCallback
from wheelsched.worker.delivery import Delivery, Run, read_request
from wheelsched.worker.signature import Verifier

TOLERANCE_S: Final = 300.0


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = TOLERANCE_S,
) -> Run:
    """The run of a genuine callback, for sync and async code alike.

    Raises `UnverifiedCallback` when the signature is missing, wrong or older than `tolerance_s`,
    and `InvalidCallback` when the request is signed and is not one of a single run.
    """
    runs = _verify(headers, body, secrets, tolerance_s)
    if isinstance(runs, list):
        raise InvalidCallback("the request carries a batch of runs: use verify_batch")
    return runs


def verify_batch(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = TOLERANCE_S,
) -> list[Run]:
    """The runs of a genuine callback of a job whose `target.batch` is above 1: see `verify`."""
    runs = _verify(headers, body, secrets, tolerance_s)
    return runs if isinstance(runs, list) else [runs]


def _verify(
    headers: Mapping[str, str], body: bytes, secrets: str | Sequence[str], tolerance_s: float
) -> Run | list[Run]:
    if not isinstance(body, bytes):
        raise TypeError(f"body must be the bytes of the request, not {type(body).__name__}")
    verifier = Verifier(
        [secrets] if isinstance(secrets, str) else secrets,
        tolerance_us=int(tolerance_s * SECOND),
        wall_us=SystemClock.wall_us,
    )
    named = {name.lower(): value for name, value in headers.items()}
    deliveries = read_request(named, body, verifier.verify(named, body))
    if isinstance(deliveries, Delivery):
        return Run(**asdict(deliveries))
    return [Run(**asdict(each)) for each in deliveries]
