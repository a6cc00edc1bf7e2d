"""Dead runs: listing and redriving.

Invariant: a redrive takes the oldest runs first and uses the late lane, never ahead of on-time
runs. Sent again with its key it retries no run twice, and names those that this copy has retried.
"""

from uuid import UUID

from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.pages import MAX_LIMIT, PageQuery, split_page
from wheelsched.api.http.reading import read_query_us
from wheelsched.api.resources.run_lists import named_runs
from wheelsched.core.model import RunKey, format_run_id
from wheelsched.ports import DeadFilter, HistoryStore, JobStore
from wheelsched.values.duration import SECOND
from wheelsched.wire.instant import Instant, read_us
from wheelsched.wire.run import RedriveRequest, RequestedAnswer, RunPage
from wheelsched.wire.tenant import Scope


class DeadRunsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead runs to list, oldest first."""

    job_id: UUID | None = None
    since: Instant | None = None
    until: Instant | None = None


class DeadRuns:
    """Operations on dead runs."""

    def __init__(self, jobs: JobStore, history: HistoryStore) -> None:
        self._jobs = jobs
        self._history = history

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/dead",
                summary="List dead runs, oldest first",
                scope=Scope.READ,
                handle=self.list_dead,
                query=DeadRunsQuery,
                response=RunPage,
            ),
            Operation(
                method="POST",
                path="/dead/redrive",
                summary="Retry dead runs, oldest first",
                scope=Scope.WRITE,
                handle=self.redrive,
                body=RedriveRequest,
                is_body_optional=True,
                response=RequestedAnswer,
                status=202,
            ),
        )

    async def list_dead(self, call: Call[DeadRunsQuery, None]) -> ApiResponse:
        query = call.query
        wanted = DeadFilter(
            job_id=query.job_id,
            since_us=None if query.since is None else read_query_us(query.since, "since"),
            until_us=None if query.until is None else read_query_us(query.until, "until"),
        )
        cursors = Cursors(call.caller.tenant_id, "dead", wanted)
        after = None if query.cursor is None else cursors.read(query.cursor, RunKey)
        found = await self._history.list_dead(call.caller, wanted, query.limit + 1, after)
        page, last = split_page(found, query.limit)
        return ApiResponse(
            body=RunPage(
                items=await named_runs(self._jobs, call.caller, page),
                next_cursor=None if last is None else cursors.write(last.key),
            )
        )

    async def redrive(self, call: Call[NoQuery, RedriveRequest]) -> ApiResponse:
        body, spacing_us = call.body, 0
        wanted = DeadFilter(
            job_id=body.job_id,
            since_us=None if body.since is None else read_us(body.since, pointer="/since"),
            until_us=None if body.until is None else read_us(body.until, pointer="/until"),
        )
        if body.rate is not None:
            spacing_us = SECOND // body.rate
        redriven: list[RunKey] = []
        after: RunKey | None = None
        while (left := body.limit - len(redriven)) > 0:
            page = await self._history.list_dead(call.caller, wanted, min(left, MAX_LIMIT), after)
            if not page:
                break
            keys = [run.key for run in page]
            refused = await self._history.retry(
                call.caller,
                keys,
                delay_us=len(redriven) * spacing_us,
                spacing_us=spacing_us,
                ended_by_us=call.now_us if call.is_copy else None,
            )
            redriven += [key for key in keys if key not in refused]
            after = keys[-1]
        run_ids = list(map(format_run_id, redriven))
        return ApiResponse(body=RequestedAnswer(count=len(run_ids), run_ids=run_ids), status=202)
