"""Lists of runs across jobs, by time window, latest first.

Invariant: a page costs a bounded amount of work, however many runs other tenants have in the
window. So a page may be short or empty although more pages follow; only a null `next_cursor` ends
the list.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from msgspec import Meta
from msgspec.structs import replace

from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import ApiResponse, Call, Operation
from wheelsched.api.http.pages import PageQuery
from wheelsched.api.http.reading import read_query_us
from wheelsched.api.resources.run_answers import run_answer
from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.errors import InvalidParameter
from wheelsched.ports import Caller, HistoryStore, JobStore, RunFilter
from wheelsched.values.duration import DAY, HOUR
from wheelsched.wire.instant import Instant
from wheelsched.wire.run import RunAnswer, RunPage
from wheelsched.wire.tenant import Scope

DEFAULT_WINDOW_US: Final = HOUR
MAX_DAYS: Final = 7


class RunsQuery(
    PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start": "from"}
):
    """Which runs to list, latest first."""

    state: RunState | None = None
    job_id: UUID | None = None
    start: (
        Annotated[
            Instant,
            Meta(description="Start of the time window; by default an hour before `until`."),
        ]
        | None
    ) = None
    until: (
        Annotated[Instant, Meta(description="End of the time window (exclusive); by default now.")]
        | None
    ) = None


class Position(NamedTuple):
    """The end of a page, in a window that does not move with the clock."""

    since_us: int
    until_us: int
    rest: RunKey


class RunLists:
    """Lists of runs across jobs."""

    def __init__(self, jobs: JobStore, history: HistoryStore) -> None:
        self._jobs = jobs
        self._history = history

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/runs",
                summary="List the runs of all jobs in a time window, latest first",
                description=f"The window is at most {MAX_DAYS} days. A page may be shorter than "
                "`limit`, or empty, although more follow; continue until `next_cursor` is null.",
                scope=Scope.READ,
                handle=self.list_runs,
                query=RunsQuery,
                response=RunPage,
            ),
        )

    async def list_runs(self, call: Call[RunsQuery, None]) -> ApiResponse:
        query = call.query
        cursors = Cursors(call.caller.tenant_id, "runs", replace(query, cursor=None, limit=1))
        position = None if query.cursor is None else cursors.read(query.cursor, Position)
        wanted = _wanted(query, call.now_us, position)
        found = await self._history.list_latest(
            call.caller, wanted, query.limit, None if position is None else position.rest
        )
        following = None
        if found.rest is not None:
            following = Position(wanted.since_us, wanted.until_us, found.rest)
        return ApiResponse(
            body=RunPage(
                items=await named_runs(self._jobs, call.caller, found.runs),
                next_cursor=None if following is None else cursors.write(following),
            )
        )


async def named_runs(jobs: JobStore, caller: Caller, runs: Sequence[Run]) -> list[RunAnswer]:
    """The runs with the names of their jobs."""
    names = await jobs.read_names(caller, {run.job_id for run in runs}) if runs else {}
    return [replace(run_answer(run), job_name=names.get(run.job_id)) for run in runs]


def _wanted(query: RunsQuery, now_us: int, position: Position | None) -> RunFilter:
    if position is not None:
        since_us, until_us = position.since_us, position.until_us
    else:
        until_us = now_us if query.until is None else read_query_us(query.until, "until")
        since_us = max(until_us - DEFAULT_WINDOW_US, 0)
        if query.start is not None:
            since_us = read_query_us(query.start, "from")
    if until_us - since_us > MAX_DAYS * DAY:
        raise InvalidParameter(
            f"the time window exceeds {MAX_DAYS} days; change `from` or `until`", pointer="/from"
        )
    return RunFilter(since_us=since_us, until_us=until_us, state=query.state, job_id=query.job_id)
