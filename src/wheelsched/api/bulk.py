"""Bulk registration: thousands of documents in one request, each with its own answer.

Invariant: a document that is refused keeps no other from being registered, and items are answered
in the order in which they came. While one part is being written the next one is being read.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw

from wheelsched.api.identities import Identities
from wheelsched.api.intake import Intake
from wheelsched.api.operation import JSON, NDJSON, Answer, Call, NoQuery, Operation
from wheelsched.api.problems import problem_of
from wheelsched.api.surroundings import Surroundings
from wheelsched.config import ApiConfig
from wheelsched.core.dialects import dialect_warnings
from wheelsched.core.egress import EgressRules
from wheelsched.errors import (
    InvalidDocument,
    InvalidField,
    InvalidJson,
    JobNameTaken,
    QuotaExceeded,
    WrongType,
)
from wheelsched.ports import Caller, JobStore, Registration
from wheelsched.wire.job import JobDocument
from wheelsched.wire.jobs import BulkAnswer, BulkItem
from wheelsched.wire.strict import check_json
from wheelsched.wire.tenant import Scope

PART: Final = 1_000
# Read in one go, a millisecond or two: the part before is being written and others are answered.
SLICE: Final = 50

_ARRAY: Final = msgspec.json.Decoder(list[Raw])

Judged = Registration | InvalidField | InvalidDocument

_NO_ROOM: Final = "the tenant has as many jobs as its quota allows: there is no room for this one"


class Bulk:
    """`POST /jobs/bulk`."""

    def __init__(
        self, jobs: JobStore, surroundings: Surroundings, rules: EgressRules, config: ApiConfig
    ) -> None:
        self._jobs = jobs
        self._surroundings = surroundings
        self._rules = rules
        self._config = config

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/jobs/bulk",
                summary="Register many jobs: an array, or one document in each line",
                scope=Scope.WRITE,
                handle=self.register,
                body=bytes,
                described_body=list[JobDocument],
                content_types=(JSON, NDJSON),
                max_body_bytes=self._config.max_bulk_bytes,
                answer=BulkAnswer,
            ),
        )

    async def register(self, call: Call[NoQuery, bytes]) -> Answer:
        documents = _lines(call.body) if call.content_type == NDJSON else _elements(call.body)
        reading = self._read(documents, call)
        items: list[BulkItem] = []
        part = await self._next_part(reading)
        while part:
            answered, part = await asyncio.gather(
                self._write(part, call.caller), self._next_part(reading)
            )
            items += answered
        registered = sum(item.problem is None for item in items)
        self._surroundings.vitals.registered += registered
        return Answer(
            body=BulkAnswer(registered=registered, refused=len(items) - registered, items=items)
        )

    async def _next_part(self, reading: Iterator[Judged]) -> list[Judged]:
        part: list[Judged] = []
        while len(part) < PART:
            await self._surroundings.clock.sleep(0)
            judged = list(islice(reading, SLICE))
            part += judged
            if len(judged) < SLICE:
                break
        return part

    def _read(self, documents: Iterable[bytes], call: Call[NoQuery, bytes]) -> Iterator[Judged]:
        identities = Identities(call.now_us, call.seed, self._surroundings.random)
        intake = Intake(call.now_us, self._rules)
        for document in documents:
            job_id = identities.next()
            try:
                yield intake.register_written(document, job_id, call.caller.tenant_id)
            except (InvalidField, InvalidDocument) as problem:
                yield problem

    async def _write(self, part: list[Judged], caller: Caller) -> list[BulkItem]:
        """Register what was accepted of a part, and answer all of it."""
        accepted = [judged for judged in part if isinstance(judged, Registration)]
        refusals = await self._register(accepted, caller)
        return [
            BulkItem(problem=problem_of(judged))
            if not isinstance(judged, Registration)
            else BulkItem(problem=problem_of(refusals[judged.job.job_id]))
            if judged.job.job_id in refusals
            else BulkItem(job_id=judged.job.job_id, warnings=dialect_warnings(judged.job.spec))
            for judged in part
        ]

    async def _register(
        self, wanted: list[Registration], caller: Caller
    ) -> dict[UUID, JobNameTaken | QuotaExceeded]:
        """Register as many as there is room for, the first ones, and give the others."""
        refusals: dict[UUID, JobNameTaken | QuotaExceeded] = {}
        while wanted:
            try:
                taken = await self._jobs.register(caller, wanted)
            except QuotaExceeded as error:
                new = [each.job.job_id for each in wanted if each.job.job_id in error.new]
                beyond = set(new[max(error.room, 0) :] or new)
                if not beyond:
                    raise
                refusals |= dict.fromkeys(beyond, QuotaExceeded(_NO_ROOM))
                wanted = [each for each in wanted if each.job.job_id not in beyond]
            else:
                return refusals | dict.fromkeys(taken, JobNameTaken())
        return refusals


def _elements(body: bytes) -> list[bytes]:
    """The elements of an array as they were written: each is judged by itself."""
    try:
        return [bytes(element) for element in _ARRAY.decode(body)]
    except msgspec.ValidationError:
        raise WrongType("bulk registration reads an array of jobs", pointer="") from None
    except (msgspec.DecodeError, RecursionError):
        check_json(body)  # says where
        raise InvalidJson from None


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.strip()]
