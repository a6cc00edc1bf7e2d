"""Stage *plan*: turns the drafts that applications write in their own transactions into jobs.

Invariant: every draft in a partition of ours is planned, or refused with its reasons, at the latest
one refresh after it was committed, and at once if a hint arrives. It is validated as of the time it
was written: a run that was due since is late, not lost. No draft ends the shard.

This stage also clears away the drafts of jobs that their application cancelled.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from wheelsched.core.model import Draft
from wheelsched.errors import InvalidDocument, InvalidField, WheelschedError
from wheelsched.flow import yielding
from wheelsched.ports import Plan, Planned, Unplanned, ValidateDraft
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues

log = structlog.get_logger("wheelsched.shard")

OUR_FAULT: Final = "internal error: the job could not be validated; see the log of the shard"
UNSTORABLE: Final = "the database cannot store this job; see the log of the shard"


class Planner:
    """Plans drafts."""

    def __init__(self, context: Context, queues: Queues, validate: ValidateDraft) -> None:
        self._context = context
        self._config = context.config.load
        self._queues = queues
        self._validate = validate
        self._is_done = True  # no draft was skipped because it was locked
        self._alarm = context.machine.alarm(queues.drafts.set)

    async def run(self) -> None:
        """Plans until it is cancelled."""
        try:
            while True:
                refresh_us = self._context.config.refresh_us
                self._wake_in(refresh_us if self._is_done else self._config.replan_us)
                await self._queues.drafts.wait()
                self._queues.drafts.clear()
                while await self._plan_page():
                    pass
        finally:
            self._alarm.close()

    def _wake_in(self, delay_us: int) -> None:
        self._alarm.set(self._context.machine.now_ns() + delay_us * 1_000)

    async def _plan_page(self) -> bool:
        """Plans the first page of drafts; returns whether there may be more."""
        partitions = self._context.ownership.partitions
        if not partitions:
            return False
        page = await self._context.store.list_unplanned(partitions, self._config.plan_batch)
        drafts = [(each.number, each.draft) for each in page if each.draft is not None]
        gone = [each.number for each in page if each.draft is None]
        if gone:
            await self._context.store.clear_drafts(gone)
        plans = await self._validate_all(drafts)
        planned = await self._write(plans) if plans else Planned(frozenset(), frozenset())
        self._report(page, planned)
        handled = len(gone) + len(planned.accepted) + len(planned.refused)
        self._is_done = handled == len(page)
        return handled > 0 and len(page) == self._config.plan_batch

    async def _validate_all(self, drafts: Sequence[tuple[int, Draft]]) -> list[Plan]:
        plans: list[Plan] = []
        async for some in yielding(self._context.clock, drafts, self._config.plan_slice):
            plans += [self._validate_one(*draft) for draft in some]
        return plans

    def _validate_one(self, number: int, draft: Draft) -> Plan:
        try:
            return Plan(number=number, draft=draft, registration=self._validate(draft))
        except WheelschedError as error:
            return Plan(number=number, draft=draft, error=_describe(error))
        except Exception:
            log.exception("job.validation_failed", job_id=str(draft.job_id))
            return Plan(number=number, draft=draft, error=OUR_FAULT)

    async def _write(self, plans: Sequence[Plan]) -> Planned:
        """Writes plans. A draft that the database cannot store is refused."""
        result = await self._context.store.plan(plans)
        values = result.values
        if result.refused:
            refusals = [
                Plan(number=plan.number, draft=plan.draft, error=UNSTORABLE)
                for plan in result.refused
            ]
            values += (await self._context.store.plan(refusals)).values
        return Planned(
            frozenset().union(*(planned.accepted for planned in values)),
            frozenset().union(*(planned.refused for planned in values)),
        )

    def _report(self, page: Sequence[Unplanned], planned: Planned) -> None:
        vitals = self._context.vitals.plans
        vitals.accepted += len(planned.accepted)
        vitals.refused += len(planned.refused)
        for job_id in planned.refused:
            log.info("job.refused", job_id=str(job_id))
        if page:
            self._queues.reloads.put(*(each.job_id for each in page))


def _describe(error: WheelschedError) -> str:
    """The text of a refusal, with the pointer of each problem."""
    match error:
        case InvalidDocument():
            return "; ".join(map(_describe, error.errors)) or str(error)
        case InvalidField() if error.pointer:
            return f"{error.pointer}: {error}"
        case _:
            return str(error)
