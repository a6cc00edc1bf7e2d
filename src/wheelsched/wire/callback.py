"""The callback that a worker gets, and what it answers: names and structs of both sides.

Invariant: dispatcher and worker SDK read and write callbacks by this file alone, so that what one
of them writes the other reads.

The signature is that of Standard Webhooks: of `id.timestamp.body`, where the id is the value of
`webhook-id`. A request of several runs has an id of its own, made of the ids of its runs. What a
request of one run says of it stands in headers: `wheelsched-signature` is the same signature, of
`id.timestamp.values`, where the values are those of `SIGNED`, a line each.
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

from wheelsched.core.duration import SECOND
from wheelsched.core.model import Trigger

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"
RUN_ID: Final = "wheelsched-run-id"
JOB_ID: Final = "wheelsched-job-id"
JOB_NAME: Final = "wheelsched-job-name"  # as `write_name` writes it
SCHEDULED_AT: Final = "wheelsched-scheduled-at"
ATTEMPT: Final = "wheelsched-attempt"
FENCING_TOKEN: Final = "wheelsched-fencing-token"  # noqa: S105 - a number, and no secret
TRIGGER: Final = "wheelsched-trigger"
TIMEOUT_MS: Final = "wheelsched-timeout-ms"  # of the answer, and between heartbeats after a 202
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

OWN_PREFIXES: Final = ("wheelsched-", "webhook-")  # of headers that a job cannot set

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def is_callback(header_names: Iterable[str]) -> bool:
    """Whether a request is a callback, of one run or of a batch: a job cannot leave them out."""
    return any(name.lower().startswith(OWN_PREFIXES) for name in header_names)


class BatchElement(Struct, frozen=True, kw_only=True):
    """One run in the array of a request that carries several."""

    run_id: str
    job_id: UUID
    job_name: str
    scheduled_at: str
    attempt: int
    fencing_token: int
    idempotency_key: str
    trigger: Trigger
    timeout_ms: int | None = None  # None: of a shard that is older than this field
    payload: Raw


class BatchAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the worker says of one run, in the array that answers such a request."""

    run_id: str
    ok: bool
    error: str | None = None
    retry: bool | None = None  # False: another attempt would not help


encode_element: Final = msgspec.json.Encoder().encode
decode_elements: Final = msgspec.json.Decoder(list[BatchElement]).decode
encode_answers: Final = msgspec.json.Encoder().encode
_decode_answers: Final = msgspec.json.Decoder(list[BatchAnswer]).decode
_decode_answer: Final = msgspec.json.Decoder(BatchAnswer).decode
_decode_raw: Final = msgspec.json.Decoder(list[Raw]).decode
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what they raise


def read_answers(body: bytes) -> dict[str, BatchAnswer] | None:
    """The answers to a batch by run id; None when the body is no array.

    What is no answer names no run. Of a run that is named twice, a failure counts: it can be
    mended by another attempt, and a success that was none cannot.
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
    """The idempotency key of a request of several runs: of the same set, in any order, the same."""
    digest = hashlib.sha256("\n".join(sorted(run_ids)).encode())
    return f"batch_{digest.hexdigest()[:40]}"


# A header carries printable ASCII. The sign of the encoding and the space, which is trimmed at
# the ends, are encoded too, so that every name can be read back.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_is_plain: Final = re.compile(f"[{re.escape(_PLAIN)}]*").fullmatch


def write_name(name: str) -> str:
    """The name of a job as a header carries it: UTF-8, percent-encoded where it has to be."""
    return name if _is_plain(name) else quote(name, safe=_PLAIN)


def write_key(key: str) -> str:
    """An idempotency key as headers carry it: as it is, if they can, which registering sees to."""
    return key if key.isascii() and key.isprintable() else quote(key, safe=_PLAIN)


def read_name(written: str) -> str:
    """The name that `write_name` wrote."""
    return unquote(written)


def write_instant(instant_us: int) -> str:
    """ISO 8601 in UTC: `2026-11-16T14:00:00Z`, with microseconds where there are any."""
    second, microsecond = divmod(instant_us, SECOND)
    text = _write_second(second)
    return f"{text}.{microsecond:06}Z" if microsecond else f"{text}Z"


# The runs of a second share most of its text, which is made once for all of them.
@lru_cache(maxsize=1_024)
def _write_second(second: int) -> str:
    return f"{_EPOCH + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}"


def read_instant(text: str) -> int:
    """The instant that `write_instant` wrote, or `ValueError`."""
    return (datetime.fromisoformat(text).astimezone(UTC) - _EPOCH) // _MICROSECOND
