"""Encodes callbacks ahead of their time, and assembles batches into one request.

Invariant: `prepare` returns a complete callback. A single callback is one bytes object, head and
body, and is sent unchanged unless its signature is too old. A batch is assembled from encoded
elements at its due time and signed then, because only then its runs are known. Every header line is
printable ASCII, whatever is stored. The run headers of a single callback are signed too, so none of
them can be changed. A batch has them in its body.

`traceparent` needs no randomness. The trace is the run: its id is a hash of the run's key. The span
is the attempt: its id is the fencing token, which differs for every attempt of a run. A batch is a
trace of its own.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from msgspec import Raw

from wheelsched.core.model import format_run_id
from wheelsched.delivery.http.route import HttpRoute
from wheelsched.delivery.http.signing import sign, sign_both
from wheelsched.ports import Callback, Prepared
from wheelsched.values.duration import MILLISECOND, MINUTE, SECOND
from wheelsched.wire import callback as wire

MAX_SIGNATURE_AGE_US: Final = MINUTE  # receivers refuse a timestamp that is five minutes off
END: Final = b"\r\n"

# One template for a head, because a dozen small ones would take as long as the signature.
_SIGNATURE: Final = f"{wire.WEBHOOK_TIMESTAMP}: %d\r\n{wire.WEBHOOK_SIGNATURE}: %s\r\n"
_KEYS: Final = f"{wire.IDEMPOTENCY_KEY}: %s\r\n{wire.WEBHOOK_ID}: %s\r\n{wire.TRACEPARENT}: %s\r\n"
_LENGTH: Final = "Content-Length: %d\r\n\r\n"
_BATCH_HEAD: Final = _SIGNATURE + _KEYS + _LENGTH
_BOTH_SIGNATURES: Final = f"{_SIGNATURE}{wire.SIGNATURE}: %s\r\n"
_CALLBACK_HEAD: Final = (
    _BOTH_SIGNATURES + _KEYS + "".join(f"{name}: %s\r\n" for name in wire.SIGNED) + _LENGTH
)
_SIGNED: Final = tuple(f"{name}: ".encode() for name in wire.SIGNED)


class Request(NamedTuple):
    """The bytes to send, and the timeout of the response."""

    content: bytes
    timeout_us: int


def prepare(route: HttpRoute, callback: Callback) -> Prepared:
    """Encode a callback, and sign it for the second in which it will be sent."""
    run_id = format_run_id(callback.key)
    key = wire.write_key(callback.idempotency_key)
    if route.batch > 1:
        content = _encode_element(callback, run_id)
    else:
        content = _encode_request(route, callback, run_id, key)
    return Prepared(
        run_id=run_id,
        idempotency_key=key,
        token=callback.token,
        send_at_us=callback.send_at_us,
        timeout_us=callback.timeout_us,
        secrets=callback.secrets,
        content=content,
    )


def assemble(route: HttpRoute, batch: Sequence[Prepared], now_us: int) -> Request:
    """The request for a batch that is sent now."""
    if route.batch > 1:
        return _assemble_array(route, batch, now_us)
    (prepared,) = batch
    content = prepared.content
    if abs(now_us - prepared.send_at_us) > MAX_SIGNATURE_AGE_US:
        content = _signed_again(route, prepared, now_us)
    return Request(content, prepared.timeout_us)


def _encode_element(callback: Callback, run_id: str) -> bytes:
    return wire.encode_element(
        wire.BatchElement(
            run_id=run_id,
            job_id=callback.key.job_id,
            job_name=callback.job_name,
            scheduled_at=wire.write_instant(callback.scheduled_us),
            attempt=callback.attempt,
            fencing_token=callback.token,
            idempotency_key=callback.idempotency_key,
            trigger=callback.trigger,
            timeout_ms=callback.timeout_us // MILLISECOND,
            payload=Raw(callback.payload),
        )
    )


def _encode_request(route: HttpRoute, callback: Callback, run_id: str, key: str) -> bytes:
    """A whole request. Its signatures come right after the route's head: see `_signed_again`."""
    payload = callback.payload
    timestamp = callback.send_at_us // SECOND
    values = (
        run_id,
        _write_job_id(run_id),
        wire.write_name(callback.job_name),
        wire.write_instant(callback.scheduled_us),
        str(callback.attempt),
        str(callback.token),
        callback.trigger.value,
        str(callback.timeout_us // MILLISECOND),
    )
    signed_values = "\n".join(values).encode("ascii")
    head = _CALLBACK_HEAD % (
        timestamp,
        *sign_both(callback.secrets, key, timestamp, payload, signed_values),
        key,
        key,
        _traceparent(run_id, callback.token),
        *values,
        len(payload),
    )
    return b"%b%b%b" % (route.head, head.encode("ascii"), payload)


def _signed_again(route: HttpRoute, prepared: Prepared, now_us: int) -> bytes:
    own = prepared.content[len(route.head) :]
    _, _, _, rest = own.split(END, 3)  # without its timestamp and its signatures
    head, _, body = rest.partition(END + END)
    values = [line.partition(b": ")[2] for line in head.split(END) if line.startswith(_SIGNED)]
    timestamp = now_us // SECOND
    signatures = sign_both(
        prepared.secrets, prepared.idempotency_key, timestamp, body, b"\n".join(values)
    )
    signed = _BOTH_SIGNATURES % (timestamp, *signatures)
    return b"%b%b%b" % (route.head, signed.encode("ascii"), rest)


def _assemble_array(route: HttpRoute, batch: Sequence[Prepared], now_us: int) -> Request:
    body = b"[%b]" % b",".join([prepared.content for prepared in batch])
    key = wire.batch_key([prepared.run_id for prepared in batch])
    tokens = [prepared.token for prepared in batch]
    newest = batch[tokens.index(max(tokens))]
    timestamp = now_us // SECOND
    head = _BATCH_HEAD % (
        timestamp,
        sign(newest.secrets, key, timestamp, body),
        key,
        key,
        _traceparent(key, newest.token),
        len(body),
    )
    return Request(
        b"%b%b%b" % (route.head, head.encode("ascii"), body),
        max([prepared.timeout_us for prepared in batch]),
    )


def _traceparent(traced: str, token: int) -> str:
    """W3C Trace Context: version, trace, span, and the flag "sampled"."""
    trace_id = blake2b(traced.encode(), digest_size=16).hexdigest()
    return f"00-{trace_id}-{token:016x}-01"


def _write_job_id(run_id: str) -> str:
    """The id of the job with hyphens, taken from the digits of the run id."""
    return f"{run_id[:8]}-{run_id[8:12]}-{run_id[12:16]}-{run_id[16:20]}-{run_id[20:32]}"
