"""Under arm and sweep: from a claimed run and its job to a request that waits for its time.

Invariant: the request of an attempt depends on the run's key and own payload, the attempt, the
token and the job's definition alone, so that a second preparation replaces the first.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from wheelsched.core.compile import compile_schedule
from wheelsched.core.idempotency import compile_template
from wheelsched.core.model import Job, Lane, Run, RunKey, RunState, Trigger
from wheelsched.ports import Callback, Dispatcher, Tenant
from wheelsched.shard.armed import ArmedRun, rules_of
from wheelsched.shard.context import Context
from wheelsched.shard.reports import Ruling, unprepared

READ_AT_ONCE = 60

Id = TypeVar("Id", UUID, RunKey)


class Preparation:
    """Makes armed runs. Knows the tenants, whose secrets sign."""

    def __init__(self, context: Context, dispatcher: Dispatcher) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._tenants: dict[UUID, Tenant] = {}

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """The definitions of jobs, after their tenants have become known."""
        if not job_ids:
            return []
        jobs: list[Job] = []
        for part in _in_parts(job_ids):
            jobs += await self._context.patience.insist(
                "job.read", partial(self._context.stores.timers.read_jobs, part)
            )
        await self._read_tenants({job.tenant_id for job in jobs} - self._tenants.keys())
        return jobs

    async def with_payloads(self, runs: Sequence[Run]) -> list[Run]:
        """Runs with the payloads that they were triggered with; all others have their job's."""
        manual = [run.key for run in runs if run.trigger is Trigger.MANUAL]
        payloads: dict[RunKey, Raw] = {}
        for part in _in_parts(manual):
            payloads |= await self._context.patience.insist(
                "payload.read", partial(self._context.stores.timers.read_payloads, part)
            )
        return [
            replace(run, payload=payloads[run.key]) if run.key in payloads else run for run in runs
        ]

    async def refresh(self) -> None:
        """Reads the tenants again: weights and secrets change."""
        await self._read_tenants(self._tenants.keys())

    def weight_of(self, tenant_id: UUID) -> int:
        tenant = self._tenants.get(tenant_id)
        return 1 if tenant is None else tenant.weight

    def prepare(
        self, job: Job, run: Run, token: int, fire_at_us: int | None = None
    ) -> ArmedRun | Ruling:
        """The attempt of `run` that is in hand, with `token`, to be sent then, or when it was due.

        Or its end, when no request can be made of it: one bad job must not end the shard.
        """
        try:
            if fire_at_us is None:
                fire_at_us = _meant_us(job, run)
            return self._prepare(job, run, token, fire_at_us)
        except Exception:  # noqa: BLE001 - which is told there
            return unprepared(run.key, token)

    def _prepare(self, job: Job, run: Run, token: int, fire_at_us: int) -> ArmedRun:
        route = self._dispatcher.route(job.tenant_id, job.target)
        tenant = self._tenants.get(job.tenant_id)
        template = compile_template(job.idempotency_key)
        callback = Callback(
            key=run.key,
            job_name=job.name,
            payload=bytes(job.payload if run.payload is None else run.payload),
            secrets=tenant.secrets if tenant else (),
            scheduled_us=run.scheduled_us,
            send_at_us=fire_at_us,
            timeout_us=job.timeout_us,
            attempt=run.attempt + (run.state is RunState.ARMED),
            token=token,
            trigger=run.trigger,
            idempotency_key=template.render(job.job_id, run.scheduled_us, job.spec.timezone),
        )
        return ArmedRun(
            key=run.key,
            token=token,
            fire_at_us=fire_at_us,
            attempt=run.attempt_in_hand,
            trigger=run.trigger,
            lane=run.lane,
            is_first=not run.has_begun,
            version=job.version,
            rules=rules_of(job),
            route=route,
            priority=job.priority,
            prepared=self._dispatcher.prepare(route, callback),
        )

    async def _read_tenants(self, tenant_ids: Collection[UUID]) -> None:
        if tenant_ids:
            tenants = await self._context.patience.insist(
                "tenant.read", lambda: self._context.stores.tenants.read(tenant_ids)
            )
            self._tenants |= {tenant.tenant_id: tenant for tenant in tenants}


def _meant_us(job: Job, run: Run) -> int:
    """When a run was meant to be dispatched: its due time and, if scheduled, its jitter."""
    if run.trigger is not Trigger.SCHEDULE:
        return run.due_us
    schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
    return run.due_us + schedule.jitter_us(run.due_us)


def _in_parts(ids: Collection[Id]) -> Iterator[Sequence[Id]]:
    """A part in each turn of the loop: to decode a definition takes as long as to send a run."""
    wanted = list(ids)
    for start in range(0, len(wanted), READ_AT_ONCE):
        yield wanted[start : start + READ_AT_ONCE]


def adopted_lane(run: Run, job: Job, now_us: int) -> Lane:
    """The lane of a run that was left behind: what is past its grace overtakes nobody."""
    return Lane.LATE if now_us - run.due_us > job.misfire.grace_us else run.lane
