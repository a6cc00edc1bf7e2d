"""What strangers send: every reader of it, as a function of bytes.

Invariant: whatever the bytes, a reader takes them or refuses them by a name that has a status below
500. Anything else that is raised is a fault of ours, and what a fuzzer looks for.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.problems import problem_of
from wheelsched.api.resources.bulk import _elements, _lines
from wheelsched.core.idempotency import check_template
from wheelsched.core.model import RunKey, format_run_id, parse_run_id
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.target import check_url
from wheelsched.errors import InvalidCallback, InvalidRunId, WheelschedError
from wheelsched.jobs.merge import merge
from wheelsched.jobs.parse import JobParser
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.explain import explain
from wheelsched.schedule.parse import first_due_us, parse
from wheelsched.values.duration import SECOND, format_duration, parse_duration
from wheelsched.wire.callback import read_answers
from wheelsched.wire.jobs import ResumeRequest
from wheelsched.wire.run import (
    BackfillRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    RedriveRequest,
)
from wheelsched.wire.strict import check_json, read_strictly
from wheelsched.wire.tenant import TenantRequest, TokenRequest
from wheelsched.worker.delivery import read_request

Target = Callable[[bytes], None]
Reader = Callable[[bytes], object]

NOW_US: Final = 1_800_000_000 * SECOND
JOB_ID: Final = UUID(int=0x018F3C2E7A9B7C3D8E4F000000000001)
ZONES: Final = ("UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia")
BODIES: Final[tuple[type[Struct], ...]] = (
    BackfillRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatRequest,
    RedriveRequest,
    ResumeRequest,
    TenantRequest,
    TokenRequest,
)
DOCUMENT_WRITTEN: Final = (
    b'{"name":"a","schedule":{"cron":"0 9 * * 1","start":"2026-01-01","exclude":["2026-12-25"]},'
    b'"timezone":"America/New_York","target":{"url":"https://example.org/","headers":{"x-a":"b"},'
    b'"batch":5},"payload":{"a":[1,null]},"misfire":{"policy":"all","grace":"60s","window":"1h",'
    b'"max_missed":3},"overlap":{"policy":"queue","max_concurrent":2},"retry":{"max_attempts":4,'
    b'"backoff":"exponential","initial":"1s","max":"5m"},"timeout":"120s","jitter":"5s",'
    b'"priority":1,"dst":{"gap":"skip","overlap":"both"},"idempotency_key":"{{job_id}}:{{date}}",'
    b'"tags":{"team":"a"}}'
)


def permitted(read: Reader) -> Target:
    """A reader that may refuse. What names no run is told apart where the name is looked up."""

    def attempt(data: bytes) -> None:
        try:
            read(data)
        except InvalidRunId:
            return
        except WheelschedError as error:
            if problem_of(error).status >= 500:
                raise AssertionError(f"a refusal that counts as a fault: {error!r}") from error

    return attempt


def read_bodies(data: bytes) -> None:
    for body in BODIES:
        permitted(lambda data, body=body: _read_body(data, body))(data)  # type: ignore[misc] # bound


def _read_body(data: bytes, body: type[Struct]) -> None:
    value = read_strictly(data, _decoder(body))
    again = read_strictly(msgspec.json.encode(value), _decoder(body))
    assert again == value


def read_job(data: bytes) -> None:
    registration = JobParser(NOW_US, EgressRules()).register_json(data, JOB_ID, UUID(int=1))
    job = registration.job
    assert registration.due_us is not None
    schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
    _check_times(schedule.next_after, registration.due_us)


def read_patch(data: bytes) -> None:
    if isinstance(check_json(data), dict):
        read_job(bytes(merge(Raw(DOCUMENT_WRITTEN), Raw(data))))


def read_bulk(data: bytes) -> None:
    for line in _lines(data):
        permitted(read_job)(line)
    for element in _elements(data):
        permitted(read_job)(element)


def read_schedule(data: bytes) -> None:
    """The first byte chooses the zone; the rest is what was written, as text or as JSON."""
    zone, text = ZONES[data[0] % len(ZONES)] if data else "UTC", data[1:].decode("utf-8", "replace")
    written: object = text
    if text.lstrip()[:1] == "{":
        try:
            written = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return
    spec = parse(written, timezone=zone, now_us=NOW_US)
    due_us = first_due_us(spec, JOB_ID, now_us=NOW_US)
    schedule = compile_schedule(spec, JOB_ID, NOW_US)
    _check_times(schedule.next_after, due_us)
    explain(spec, JOB_ID, now_us=NOW_US)


def _check_times(next_after: Callable[[int], int | None], due_us: int) -> None:
    """Due times grow, and each is the next one after the instant before it."""
    times = [due_us]
    while len(times) < 4 and (next_us := next_after(times[-1])) is not None:
        times.append(next_us)
    assert all(earlier < later for earlier, later in pairwise(times)), times
    for time_us in times:
        assert next_after(time_us - 1) == time_us


def read_small(data: bytes) -> None:
    """What is one word: durations, ids, cursors, addresses, templates."""
    text = data.decode("utf-8", "replace")
    permitted(lambda _: _read_duration(text))(data)
    permitted(lambda _: _read_run_id(text))(data)
    permitted(lambda _: _read_cursor(text))(data)
    permitted(lambda _: _read_url(text))(data)
    permitted(lambda _: check_template(text, is_recurring=True))(data)


def _read_duration(text: str) -> None:
    duration_us = parse_duration(text)
    assert parse_duration(format_duration(duration_us)) == duration_us


def _read_run_id(text: str) -> None:
    key = parse_run_id(text)
    assert parse_run_id(format_run_id(key)) == key


def _read_cursor(text: str) -> None:
    Cursors(UUID(int=1), "jobs").read(text, tuple[int, str])


def _read_url(text: str) -> None:
    endpoint = check_url(text)
    assert "\n" not in str(endpoint)


def read_callback(data: bytes) -> None:
    """What a worker reads of a batch, and what a shard reads of its answer."""
    read_answers(data)
    try:
        read_request({}, data, "id")
    except InvalidCallback:
        return


@cache
def _decoder(body: type[Struct]) -> "msgspec.json.Decoder[Struct]":
    return msgspec.json.Decoder(body)


TARGETS: Final[dict[str, Target]] = {
    "bodies": read_bodies,
    "job": permitted(read_job),
    "patch": permitted(read_patch),
    "bulk": permitted(read_bulk),
    "schedule": permitted(read_schedule),
    "small": read_small,
    "callback": read_callback,
}

# What to begin with, and whose pieces to put together anew.
WORDS: Final[tuple[bytes, ...]] = (
    DOCUMENT_WRITTEN,
    b"[" + DOCUMENT_WRITTEN + b"]",
    b'{"token":1}',
    b'{"since":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z","preview":true}',
    b'{"from":"paused_at"}',
    b'{"name":null,"tags":null,"payload":{"\\u0000":1e999}}',
    b"0*/5 1-3,L * JAN#2 MON-FRI",
    b"00 0 29 2 *",
    b"1H H(0-7) * * 5#3",
    b"2@daily",
    b"3every 90m",
    b"0every 1 hour and 30 minutes",
    b'1{"at":"in 5 minutes"}',
    b"2in 1h30m",
    b"4INTERVAL = 2; FREQ=MONTHLY;BYDAY=MO, -1WE;BYWEEKNO=1;UNTIL=99991231",
    b"42026-03-08T02:30:00",
    b"0RRULE:FREQ=MONTHLY;BYDAY=-1FR;BYSETPOS=2;COUNT=3;UNTIL=20300101T000000Z",
    b'1{"rrule":"FREQ=YEARLY;BYWEEKNO=53;BYMONTH=2","start":"2026-01-01","end":"2027-01-01"}',
    b"2RRULE:FREQ=SECONDLY;INTERVAL=7;BYHOUR=25;BYSECOND=60;WKST=SU",
    b"1h30m5.5s",
    format_run_id(RunKey(JOB_ID, NOW_US)).encode(),
    b"https://user:pass@[::ffff:10.0.0.1]:8080/%2e%2e?a#b",
    b"{{job_id}}:{{hour}}",
    Cursors(UUID(int=1), "jobs").write((1, "a")).encode(),
    b'[{"run_id":"a","ok":true,"error":"b","retry":false},{"run_id":"a","ok":1}]',
    b"\xef\xbb\xbf\xff\x00\xed\xa0\x80",
    b'[{"run_id":"a","ok":true},{"run_id":"b\xd7","ok":true}]',
    b"9" * 40,
    b'{"a":1,"a":1,"b"',
    b'{"a":' * 70,
)
