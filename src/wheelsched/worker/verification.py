"""Verifies callbacks for code that serves them without a `Worker`, in any framework.

Invariant: every returned run was signed with one of the secrets. A signature covers all of its
fields except `traceparent`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import asdict

from wheelsched.clock import SystemClock
from wheelsched.errors import InvalidCallback
from wheelsched.values.duration import SECOND
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
    """Return the run of a verified callback. Works in sync and async code.

    Raises `UnverifiedCallback` if the signature is missing, wrong or older than `tolerance_s`, and
    `InvalidCallback` if the request is signed but does not contain exactly one run.
    """
    runs = _verify(headers, body, secrets, tolerance_s)
    if isinstance(runs, list):
        raise InvalidCallback("the request contains a batch of runs; use verify_batch")
    return runs


def verify_batch(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = TOLERANCE_S,
) -> list[Run]:
    """Return the runs of a verified callback of a job with `target.batch` above 1. See `verify`."""
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
