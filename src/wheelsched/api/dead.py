"""The dead: runs out of attempts, listed and redriven.

Invariant: a redrive takes the oldest first and goes to the late lane: never ahead of on-time work.
"""

from uuid import UUID

from wheelsched.api.cursors import Cursors
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.pages import MAX_LIMIT, PageQuery, cut
from wheelsched.api.reading import read_query_us
from wheelsched.api.run_lists import named_runs
from wheelsched.core.duration import SECOND
from wheelsched.core.model import RunKey, format_run_id
from wheelsched.ports import DeadFilter, HistoryStore, JobStore
from wheelsched.wire.instant import Instant, read_us
from wheelsched.wire.run import RedriveRequest, RequestedAnswer, RunPage
from wheelsched.wire.tenant import Scope


class DeadQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead runs, oldest first."""

    job_id: UUID | None = None
    since: Instant | None = None
    until: Instant | None = None


class Dead:
    """What is asked of runs that are out of attempts."""

    def __init__(self, jobs: JobStore, history: HistoryStore) -> None:
        self._jobs = jobs
        self._history = history

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/dead",
                summary="List the runs that are out of attempts, oldest first",
                scope=Scope.READ,
                handle=self.list_dead,
                query=DeadQuery,
                answer=RunPage,
            ),
            Operation(
                method="POST",
                path="/dead/redrive",
                summary="Try dead runs again, oldest first",
                scope=Scope.WRITE,
                handle=self.redrive,
                body=RedriveRequest,
                is_body_optional=True,
                answer=RequestedAnswer,
                status=202,
            ),
        )

    async def list_dead(self, call: Call[DeadQuery, None]) -> Answer:
        query = call.query
        wanted = DeadFilter(
            job_id=query.job_id,
            since_us=None if query.since is None else read_query_us(query.since, "since"),
            until_us=None if query.until is None else read_query_us(query.until, "until"),
        )
        cursors = Cursors(call.caller.tenant_id, "dead", wanted)
        after = None if query.cursor is None else cursors.read(query.cursor, RunKey)
        found = await self._history.list_dead(call.caller, wanted, query.limit + 1, after)
        page, last = cut(found, query.limit)
        return Answer(
            body=RunPage(
                items=await named_runs(self._jobs, call.caller, page),
                next_cursor=None if last is None else cursors.write(last.key),
            )
        )

    async def redrive(self, call: Call[NoQuery, RedriveRequest]) -> Answer:
        written, spacing_us = call.body, 0
        wanted = DeadFilter(
            job_id=written.job_id,
            since_us=None if written.since is None else read_us(written.since, pointer="/since"),
            until_us=None if written.until is None else read_us(written.until, pointer="/until"),
        )
        if written.rate is not None:
            spacing_us = SECOND // written.rate
        redriven: list[RunKey] = []
        after: RunKey | None = None
        while (left := written.limit - len(redriven)) > 0:
            page = await self._history.list_dead(call.caller, wanted, min(left, MAX_LIMIT), after)
            if not page:
                break
            keys = [run.key for run in page]
            refused = await self._history.retry(
                call.caller, keys, delay_us=len(redriven) * spacing_us, spacing_us=spacing_us
            )
            redriven += [key for key in keys if key not in refused]
            after = keys[-1]
        run_ids = list(map(format_run_id, redriven))
        return Answer(body=RequestedAnswer(count=len(run_ids), run_ids=run_ids), status=202)
