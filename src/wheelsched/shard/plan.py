"""Stage *plan*: what applications have written in transactions of their own becomes jobs.

Invariant: every draft in a partition of ours is planned, or refused with its reasons, at the latest
one refresh after it was committed, and at once when a hint tells of it. It is judged as of the time
it was written: what was due since is late, and not lost. No draft ends the shard.

What is left of a job that its application cancelled is cleared away here too.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from msgspec import Struct

from wheelsched.core.duration import SECOND
from wheelsched.core.model import Draft
from wheelsched.errors import InvalidDocument, InvalidField, WheelschedError
from wheelsched.ports import Judge, Plan, Planned, Unplanned
from wheelsched.shard.context import Context
from wheelsched.shard.portions import in_portions

log = structlog.get_logger("wheelsched.shard")

BATCH = 500
TURN = 20  # drafts judged in one turn of the loop
AGAIN_US = SECOND  # until what somebody had locked is looked at again
OUR_FAULT = "it could not be judged: a fault of the scheduler, which has logged it"
UNSTORABLE = "the database refuses to store what was made of it, as the log of its shard says"


class Outlets(Struct, frozen=True):
    """Whom to tell."""

    reload: Callable[..., None]  # jobs that have a timer now


class Planner:
    """Plans drafts."""

    def __init__(self, context: Context, judge: Judge, outlets: Outlets) -> None:
        self._context = context
        self._judge = judge
        self._outlets = outlets
        self._woken = asyncio.Event()
        self._is_done = True  # what was seen; else somebody had locked some of it
        self._alarm = context.machine.alarm(self.wake)

    def wake(self) -> None:
        """Looks for drafts, soon."""
        self._woken.set()

    async def run(self) -> None:
        """Plans until it is cancelled."""
        try:
            while True:
                self._look_in(self._context.config.refresh_us if self._is_done else AGAIN_US)
                await self._woken.wait()
                self._woken.clear()
                while await self._plan_page():
                    pass
        finally:
            self._alarm.close()

    def _look_in(self, delay_us: int) -> None:
        self._alarm.set(self._context.machine.now_ns() + delay_us * 1_000)

    async def _plan_page(self) -> bool:
        """Plans what comes first; gives whether there is more to do at once."""
        partitions = self._context.tenure.partitions
        if not partitions:
            return False
        patience, plans = self._context.patience, self._context.stores.plans
        page = await patience.insist("job.list", lambda: plans.list_unplanned(partitions, BATCH))
        drafts = [(each.number, each.draft) for each in page if each.draft is not None]
        gone = [each.number for each in page if each.draft is None]
        if gone:
            await patience.insist_leased("job.clear", lambda lease: plans.clear(lease, gone))
        judged = await self._judge_all(drafts)
        planned = await self._write(judged) if judged else Planned(frozenset(), frozenset())
        self._tell(page, planned)
        seen_to = len(gone) + len(planned.accepted) + len(planned.refused)
        self._is_done = seen_to == len(page)
        return seen_to > 0 and len(page) == BATCH

    async def _judge_all(self, drafts: Sequence[tuple[int, Draft]]) -> list[Plan]:
        judged: list[Plan] = []
        async for portion in in_portions(self._context.clock, drafts, TURN):
            judged += [self._judge_one(*draft) for draft in portion]
        return judged

    def _judge_one(self, number: int, draft: Draft) -> Plan:
        try:
            return Plan(number=number, draft=draft, registration=self._judge(draft))
        except WheelschedError as error:
            return Plan(number=number, draft=draft, error=_words_of(error))
        except Exception:
            log.exception("job.unjudged", job_id=str(draft.job_id))
            return Plan(number=number, draft=draft, error=OUR_FAULT)

    async def _write(self, judged: Sequence[Plan]) -> Planned:
        """Writes what was judged. What the database refuses to store is found, and refused."""
        patience, plans = self._context.patience, self._context.stores.plans

        async def write(part: Sequence[Plan]) -> list[Planned]:
            return [
                await patience.insist_leased(
                    "job.plan", lambda lease: plans.plan(lease, part), even_if_refused=False
                )
            ]

        written = await patience.insist_in_parts("job.plan", judged, write)
        refusals = [
            Plan(number=plan.number, draft=plan.draft, error=UNSTORABLE) for plan in written.refused
        ]
        answers = written.answers
        if refusals:
            answers.append(
                await patience.insist_leased("job.plan", lambda lease: plans.plan(lease, refusals))
            )
        return Planned(
            frozenset().union(*(planned.accepted for planned in answers)),
            frozenset().union(*(planned.refused for planned in answers)),
        )

    def _tell(self, page: Sequence[Unplanned], planned: Planned) -> None:
        vitals = self._context.vitals.plans
        vitals.accepted += len(planned.accepted)
        vitals.refused += len(planned.refused)
        for job_id in planned.refused:
            log.info("job.refused", job_id=str(job_id))
        if page:
            self._outlets.reload(*(each.job_id for each in page))


def _words_of(error: WheelschedError) -> str:
    """A refusal in words, with the place of each mistake."""
    match error:
        case InvalidDocument():
            return "; ".join(map(_words_of, error.errors)) or str(error)
        case InvalidField() if error.pointer:
            return f"{error.pointer}: {error}"
        case _:
            return str(error)
