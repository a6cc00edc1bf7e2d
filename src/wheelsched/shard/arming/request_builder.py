"""Builds the request of a claimed run, ahead of its time.

Invariant: a request depends only on the run's key and payload, the attempt, the token and the job's
definition, so that rebuilding it gives the same request.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from wheelsched.core.idempotency import compile_template
from wheelsched.core.model import Job, Lane, Run, RunKey, RunState, Trigger
from wheelsched.ports import Callback, Dispatcher, Tenant
from wheelsched.schedule.compile import compile_schedule
from wheelsched.shard.context import Context
from wheelsched.shard.runs.armed_run import ArmedRun, rules_of
from wheelsched.shard.settling.results import Ruling, rule_unbuildable

Id = TypeVar("Id", UUID, RunKey)


class RequestBuilder:
    """Builds armed runs. It knows the tenants and the secrets that sign their requests."""

    def __init__(self, context: Context, dispatcher: Dispatcher) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._tenants: dict[UUID, Tenant] = {}

    async def read_jobs(self, job_ids: Collection[UUID]) -> list[Job]:
        """Reads the definitions of jobs, and the tenants that are not known yet."""
        if not job_ids:
            return []
        jobs: list[Job] = []
        for part in _slices(job_ids, self._context.config.arm.read_slice):
            jobs += await self._context.store.read_jobs(part)
        await self._read_tenants({job.tenant_id for job in jobs} - self._tenants.keys())
        return jobs

    async def with_payloads(self, runs: Sequence[Run]) -> list[Run]:
        """Adds the payloads of manual runs; other runs use the payload of their job."""
        manual = [run.key for run in runs if run.trigger is Trigger.MANUAL]
        payloads: dict[RunKey, Raw] = {}
        for part in _slices(manual, self._context.config.arm.read_slice):
            payloads |= await self._context.store.read_payloads(part)
        return [
            replace(run, payload=payloads[run.key]) if run.key in payloads else run for run in runs
        ]

    async def refresh(self) -> None:
        """Reads the tenants again: weights and secrets may change."""
        await self._read_tenants(self._tenants.keys())

    def weight_of(self, tenant_id: UUID) -> int:
        tenant = self._tenants.get(tenant_id)
        return 1 if tenant is None else tenant.weight

    def prepare(
        self, job: Job, run: Run, token: int, fire_at_us: int | None = None
    ) -> ArmedRun | Ruling:
        """Builds the current attempt of a run; it is sent at its scheduled time by default.

        Returns a ruling if the request cannot be built: one bad job must not end the shard.
        """
        try:
            if fire_at_us is None:
                fire_at_us = planned_us(job, run)
            return self._prepare(job, run, token, fire_at_us)
        except Exception:  # noqa: BLE001 - the callee logs it
            return rule_unbuildable(run.key, token)

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
            is_carried=run.state is RunState.RUNNING,
            version=job.version,
            rules=rules_of(job),
            route=route,
            priority=job.priority,
            prepared=self._dispatcher.prepare(route, callback),
        )

    async def _read_tenants(self, tenant_ids: Collection[UUID]) -> None:
        if tenant_ids:
            tenants = await self._context.store.read_tenants(tenant_ids)
            self._tenants |= {tenant.tenant_id: tenant for tenant in tenants}


def planned_us(job: Job, run: Run) -> int:
    """When a run should have been dispatched: its due time plus, if scheduled, its jitter."""
    if run.trigger is not Trigger.SCHEDULE:
        return run.due_us
    schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
    return run.due_us + schedule.jitter_us(run.due_us)


def _slices(ids: Collection[Id], size: int) -> Iterator[Sequence[Id]]:
    """Slices that are read in one statement each: a definition may have a large payload."""
    wanted = list(ids)
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def adopted_lane(run: Run, job: Job, now_us: int) -> Lane:
    """The lane of an adopted run: late if it is past its grace."""
    return Lane.LATE if now_us - run.due_us > job.misfire.grace_us else run.lane
