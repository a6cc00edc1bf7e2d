"""The callback format: headers, batch elements and the worker's batch response.

Invariant: the dispatcher and the worker SDK both encode and decode callbacks with this module only.

Callbacks carry a Standard Webhooks signature of `id.timestamp.body`, where the id is the value of
`webhook-id`. A batch request derives its id from the ids of its runs. A request for one run carries
the run's metadata in headers; `wheelsched-signature` signs `id.timestamp.values`, where the values
are those of the `SIGNED` headers, one per line.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.core.model import Trigger
from wheelsched.values.duration import SECOND

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"
RUN_ID: Final = "wheelsched-run-id"
JOB_ID: Final = "wheelsched-job-id"
JOB_NAME: Final = "wheelsched-job-name"  # encoded by `write_name`
SCHEDULED_AT: Final = "wheelsched-scheduled-at"
ATTEMPT: Final = "wheelsched-attempt"
FENCING_TOKEN: Final = "wheelsched-fencing-token"  # noqa: S105 - a number, not a secret
TRIGGER: Final = "wheelsched-trigger"
TIMEOUT_MS: Final = "wheelsched-timeout-ms"  # for the response; after a 202, between heartbeats
TRACEPARENT: Final = "traceparent"
SIGNATURE: Final = "wheelsched-signature"
SIGNED: Final = (
    RUN_ID,
    JOB_ID,
    JOB_NAME,
    SCHEDULED_AT,
    ATTEMPT,
    FENCING_TOKEN,
    TRIGGER,
    TIMEOUT_MS,
)

OWN_PREFIXES: Final = ("wheelsched-", "webhook-")  # headers that a job cannot set

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def is_callback(header_names: Iterable[str]) -> bool:
    """True if the request is a callback; a job cannot suppress these headers."""
    return any(name.lower().startswith(OWN_PREFIXES) for name in header_names)


class BatchElement(Struct, frozen=True, kw_only=True):
    """One run in the JSON array of a batch request."""

    run_id: str
    job_id: UUID
    job_name: str
    scheduled_at: str
    attempt: int
    fencing_token: int
    idempotency_key: str
    trigger: Trigger
    timeout_ms: int | None = None  # None: sent by a shard older than this field
    payload: Raw


class BatchAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The result of one run in the worker's response to a batch request."""

    run_id: str
    ok: bool
    error: str | None = None
    retry: bool | None = None  # False: do not retry
    too_early: bool | None = None  # True: the attempt was not started, as with status 425


encode_element: Final = msgspec.json.Encoder().encode
decode_elements: Final = msgspec.json.Decoder(list[BatchElement]).decode
encode_answers: Final = msgspec.json.Encoder().encode
_decode_answers: Final = msgspec.json.Decoder(list[BatchAnswer]).decode
_decode_answer: Final = msgspec.json.Decoder(BatchAnswer).decode
_decode_raw: Final = msgspec.json.Decoder(list[Raw]).decode
UNREADABLE: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
)  # what the decoders raise


def read_answers(body: bytes) -> dict[str, BatchAnswer] | None:
    """The results of a batch by run id; None if the body is not an array.

    Malformed elements are ignored. If a run is named twice, a failure wins, because a retry can
    correct a false failure but nothing corrects a false success.
    """
    try:
        answers = _decode_answers(body)
    except UNREADABLE:
        try:
            answers = _well_formed(_decode_raw(body))
        except UNREADABLE:
            return None
    named = {answer.run_id: answer for answer in answers}
    if len(named) < len(answers):
        named |= {answer.run_id: answer for answer in answers if not answer.ok}
    return named


def _well_formed(elements: list[Raw]) -> list[BatchAnswer]:
    answers = []
    for element in elements:
        try:
            answers.append(_decode_answer(element))
        except UNREADABLE:
            continue
    return answers


def batch_key(run_ids: Iterable[str]) -> str:
    """The idempotency key of a batch request; it does not depend on the order of the runs."""
    digest = hashlib.sha256("\n".join(sorted(run_ids)).encode())
    return f"batch_{digest.hexdigest()[:40]}"


# Headers carry printable ASCII. `%` and space, which is trimmed at the ends, are encoded too, so
# that every name decodes to itself.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_is_plain: Final = re.compile(f"[{re.escape(_PLAIN)}]*").fullmatch


def write_name(name: str) -> str:
    """The job name as a header value: percent-encoded UTF-8 where necessary."""
    return name if _is_plain(name) else quote(name, safe=_PLAIN)


def write_key(key: str) -> str:
    """The idempotency key as a header value. Valid keys need no encoding."""
    return key if key.isascii() and key.isprintable() else quote(key, safe=_PLAIN)


def read_name(text: str) -> str:
    """Decodes a name encoded by `write_name`."""
    return unquote(text)


def write_instant(instant_us: int) -> str:
    """The instant in ISO 8601 and UTC, e.g. `2026-11-16T14:00:00Z`, with microseconds if there
    are any."""
    second, microsecond = divmod(instant_us, SECOND)
    text = _write_second(second)
    return f"{text}.{microsecond:06}Z" if microsecond else f"{text}Z"


# Runs that are due in the same second share this text.
@lru_cache(maxsize=1_024)
def _write_second(second: int) -> str:
    return f"{_EPOCH + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


@lru_cache(maxsize=1_024)
def read_instant(text: str) -> int:
    """Parses a time written by `write_instant`, or raises `ValueError`."""
    return (datetime.fromisoformat(text).astimezone(UTC) - _EPOCH) // _MICROSECOND
