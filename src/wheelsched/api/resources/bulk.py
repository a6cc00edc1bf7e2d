"""Bulk registration: thousands of job documents in one request, with a result for each.

Invariant: an invalid document does not keep others from being registered, and results are in the
order of the request. While one part is written, the next one is parsed.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Raw

from wheelsched.api.environment import Environment
from wheelsched.api.http.operation import JSON, NDJSON, ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.problems import problem_of
from wheelsched.config import ApiConfig
from wheelsched.core.targets.egress import EgressRules
from wheelsched.errors import (
    InvalidDocument,
    InvalidField,
    InvalidJson,
    JobNameTaken,
    QuotaExceeded,
    WrongType,
)
from wheelsched.jobs.job_ids import Identities
from wheelsched.jobs.parse import JobParser
from wheelsched.ports import Caller, JobStore, Registration
from wheelsched.schedule.dialects import dialect_warnings
from wheelsched.wire.job import JobDocument
from wheelsched.wire.jobs import BulkAnswer, BulkItem
from wheelsched.wire.strict import check_json
from wheelsched.wire.tenant import Scope

PART: Final = 1_000
# Parsed without yielding, 1 to 2 ms; then the event loop writes and serves other requests.
SLICE: Final = 50

_ARRAY: Final = msgspec.json.Decoder(list[Raw])

Parsed = Registration | InvalidField | InvalidDocument

_QUOTA_REACHED: Final = "the tenant has reached its job quota; this job was not registered"


class Bulk:
    """`POST /jobs/bulk`."""

    def __init__(
        self, jobs: JobStore, environment: Environment, rules: EgressRules, config: ApiConfig
    ) -> None:
        self._jobs = jobs
        self._environment = environment
        self._rules = rules
        self._config = config

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/jobs/bulk",
                summary="Register many jobs, as an array or one document per line",
                scope=Scope.WRITE,
                handle=self.register,
                body=bytes,
                described_body=list[JobDocument],
                content_types=(JSON, NDJSON),
                max_body_bytes=self._config.max_bulk_bytes,
                response=BulkAnswer,
            ),
        )

    async def register(self, call: Call[NoQuery, bytes]) -> ApiResponse:
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
        self._environment.vitals.registered += registered
        return ApiResponse(
            body=BulkAnswer(registered=registered, refused=len(items) - registered, items=items)
        )

    async def _next_part(self, reading: Iterator[Parsed]) -> list[Parsed]:
        part: list[Parsed] = []
        while len(part) < PART:
            await self._environment.clock.sleep(0)
            parsed = list(islice(reading, SLICE))
            part += parsed
            if len(parsed) < SLICE:
                break
        return part

    def _read(self, documents: Iterable[bytes], call: Call[NoQuery, bytes]) -> Iterator[Parsed]:
        identities = Identities(call.now_us, call.seed, self._environment.random)
        parser = JobParser(call.now_us, self._rules)
        for document in documents:
            job_id = identities.next()
            try:
                yield parser.register_json(document, job_id, call.caller.tenant_id)
            except (InvalidField, InvalidDocument) as problem:
                yield problem

    async def _write(self, part: list[Parsed], caller: Caller) -> list[BulkItem]:
        """Registers the valid jobs of a part, and returns the results of all."""
        accepted = [parsed for parsed in part if isinstance(parsed, Registration)]
        errors = await self._register(accepted, caller)
        return [
            BulkItem(problem=problem_of(parsed))
            if not isinstance(parsed, Registration)
            else BulkItem(problem=problem_of(errors[parsed.job.job_id]))
            if parsed.job.job_id in errors
            else BulkItem(job_id=parsed.job.job_id, warnings=dialect_warnings(parsed.job.spec))
            for parsed in part
        ]

    async def _register(
        self, wanted: list[Registration], caller: Caller
    ) -> dict[UUID, JobNameTaken | QuotaExceeded]:
        """Registers the first jobs that fit in the quota, and returns the errors of the others."""
        errors: dict[UUID, JobNameTaken | QuotaExceeded] = {}
        while wanted:
            try:
                taken = await self._jobs.register(caller, wanted)
            except QuotaExceeded as error:
                new = [each.job.job_id for each in wanted if each.job.job_id in error.new]
                beyond = set(new[max(error.room, 0) :] or new)
                if not beyond:
                    raise
                errors |= dict.fromkeys(beyond, QuotaExceeded(_QUOTA_REACHED))
                wanted = [each for each in wanted if each.job.job_id not in beyond]
            else:
                return errors | dict.fromkeys(taken, JobNameTaken())
        return errors


def _elements(body: bytes) -> list[bytes]:
    """The elements of a JSON array, undecoded: each is validated on its own."""
    try:
        return [bytes(element) for element in _ARRAY.decode(body)]
    except msgspec.ValidationError:
        raise WrongType("expected an array of jobs", pointer="") from None
    except (msgspec.DecodeError, RecursionError):
        check_json(body)  # reports the position
        raise InvalidJson from None


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line.strip()]
