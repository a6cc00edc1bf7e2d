"""Jobs, drafts and runs to and from rows of the database.

Invariant: a job is read as it was written, its payload and its schedule byte for byte.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import asyncpg
import msgspec
from msgspec import Raw, defstruct
from msgspec.structs import asdict, fields

from wheelsched.core.model import (
    DRAFT_STATES,
    Draft,
    HttpTarget,
    Job,
    JobState,
    Lane,
    QueueTarget,
    Run,
    RunState,
    SkipReason,
    Trigger,
)

Row = asyncpg.Record
Decoded = TypeVar("Decoded")

SLICE: Final = 60  # rows decoded in one loop iteration: each takes as long as sending a run

# The fields of a job that are columns of their own. All others are in the JSON document, with the
# types that `Job` gives them; a document that was stored before a field existed gets its default.
COLUMNS: Final = frozenset(
    {"job_id", "tenant_id", "name", "tags", "state", "version"}
    | {"created_at_us", "updated_at_us", "paused_at_us"}
)
_STORED: Final = [each for each in fields(Job) if each.name not in COLUMNS]
_NAMES: Final = [each.name for each in _STORED]
_values_of: Final = attrgetter(*_NAMES)
# Each kind of target has a name of its own: JSON that was stored when there was only one kind does
# not say which it is.
_QUEUE: Final = "queue_target"
_TARGETS: Final[list[tuple[str, Any, Any]]] = [
    ("target", HttpTarget | None, None),
    (_QUEUE, QueueTarget | None, None),
]

Definition: Final = defstruct(
    "Definition",
    [
        *(
            (each.name, each.type) if each.required else (each.name, each.type, each.default)
            for each in _STORED
            if each.name != "target"
        ),
        *_TARGETS,
    ],
    frozen=True,
    kw_only=True,
    gc=False,
)
DECODER = msgspec.json.Decoder(Definition)
ENCODER = msgspec.json.Encoder()
TAGS = msgspec.json.Decoder(dict[str, str])
_STATES: Final = {state.value: state for state in JobState}  # calling the enum is much slower


def encode_definition(job: Job) -> bytes:
    """The JSON document of a job."""
    values = dict(zip(_NAMES, _values_of(job), strict=True))
    if isinstance(job.target, QueueTarget):
        values[_QUEUE] = values.pop("target")
    return ENCODER.encode(values)


def decode_definition(document: bytes | str) -> dict[str, Any]:
    """The fields of a job from its JSON document."""
    values = asdict(DECODER.decode(document))
    queue = values.pop(_QUEUE)
    if values["target"] is None:
        if queue is None:
            raise msgspec.ValidationError(f"the document has neither `target` nor `{_QUEUE}`")
        values["target"] = queue
    return values


def encode_tags(job: Job) -> str:
    """The tags of a job: a column of their own, because lists are filtered by them."""
    return ENCODER.encode(job.tags).decode()


def decode_job(row: Row) -> Job:
    """A job from its row."""
    return Job(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        tags=TAGS.decode(row["tags"]),
        state=_STATES[row["state"]],
        version=row["version"],
        created_at_us=row["created_at"],
        updated_at_us=row["updated_at"],
        paused_at_us=row["paused_at"],
        **decode_definition(row["definition"]),
    )


async def decode_in_slices(decode: Callable[[Row], Decoded], rows: Sequence[Row]) -> list[Decoded]:
    """Decodes the rows of a large statement, and lets other tasks run in between."""
    decoded: list[Decoded] = []
    for start in range(0, len(rows), SLICE):
        if start:
            await asyncio.sleep(0)  # noqa: TID251 - no time passes
        decoded += map(decode, rows[start : start + SLICE])
    return decoded


def decode_draft(row: Row) -> Draft:
    """A draft from its row."""
    return Draft(
        job_id=row["job_id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        document=Raw(row["definition"]),
        state=_STATES[row["state"]],
        version=row["version"],
        created_at_us=row["created_at"],
        updated_at_us=row["updated_at"],
        error=row["error"],
    )


def decode_either(row: Row) -> Job | Draft:
    """A job or a draft from its row."""
    return decode_draft(row) if row["state"] in DRAFT_STATES else decode_job(row)


def decode_run(row: Row) -> Run:
    """A run from its row."""
    reason = row["skip_reason"]
    return Run(
        job_id=row["job_id"],
        due_us=row["due_at"],
        tenant_id=row["tenant_id"],
        state=RunState(row["state"]),
        trigger=Trigger(row["trigger"]),
        lane=Lane(row["lane"]),
        backfill_of_us=row["backfill_of"],
        attempt=row["attempt"],
        attempts_before=row["attempts_before"],
        retry_at_us=row["retry_at"],
        armed_at_us=row["armed_at"],
        started_at_us=row["started_at"],
        finished_at_us=row["finished_at"],
        lateness_us=row["lateness_us"],
        http_status=row["http_status"],
        error=row["error"],
        skip_reason=None if reason is None else SkipReason(reason),
        missed_count=row["missed_count"],
        missed_since_us=row["missed_since"],
        shard=row["shard"],
        token=row["token"],
    )
