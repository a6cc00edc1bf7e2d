"""The store of runs for the API: reading, requesting and reporting runs.

Invariant: a caller sees only the runs of its own tenant.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.model import Attempt, Run, RunKey, RunState, Trigger
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.ports.runs import Settled
from wheelsched.ports.tenants import Caller
from wheelsched.ports.work import Attempted, Held, Receipt


class RequestedRun(Struct, frozen=True, kw_only=True):
    """A manual or backfill run.

    A repeated request finds its runs by `request_id`. `payload` replaces that of the job.
    """

    key: RunKey
    trigger: Trigger
    backfill_of_us: int | None = None
    request_id: UUID | None = None
    payload: Raw | None = None


class DeadFilter(Struct, frozen=True, kw_only=True):
    """Selects dead runs by job and by due time in [since, until); None means any."""

    job_id: UUID | None = None
    since_us: int | None = None
    until_us: int | None = None


class RunFilter(Struct, frozen=True, kw_only=True):
    """Selects runs by due time in [since, until), and by state and job; None means any."""

    since_us: int
    until_us: int
    state: RunState | None = None
    job_id: UUID | None = None


class RunsFound(NamedTuple):
    """A page of runs, and the key that continues it; None on the last page."""

    runs: list[Run]
    rest: RunKey | None


class LiveRun(NamedTuple):
    """A run, and what decides whether it is retried; None if its job was deleted.

    `version` is that of its job, unless the job has changed since the attempt was armed.
    """

    run: Run
    retry: RetryPolicy | None
    version: int | None = None


class HistoryStore(Protocol):
    """The runs of one tenant, for the API and its workers."""

    async def get_run(self, caller: Caller, key: RunKey) -> tuple[Run, list[Attempt]]:
        """A run with its attempts. Raises `RunNotFound`."""

    async def list_runs(
        self, caller: Caller, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        """The runs of a job before an instant, latest first."""

    async def list_runs_from(
        self, caller: Caller, job_id: UUID, limit: int, from_us: int
    ) -> list[Run]:
        """The runs of a job from an instant on, earliest first."""

    async def list_latest(
        self, caller: Caller, wanted: RunFilter, limit: int, rest: RunKey | None = None
    ) -> RunsFound:
        """The runs of all jobs, latest first. `rest` of a page continues with the next one.

        A page may contain fewer than `limit` runs although there are more, because the work per
        page is bounded. Runs due at the same instant have a stable order.
        """

    async def list_dead(
        self, caller: Caller, wanted: DeadFilter, limit: int, after: RunKey | None = None
    ) -> list[Run]:
        """The dead runs, oldest first, after the last one of the previous page."""

    async def request(
        self, caller: Caller, runs: Sequence[RequestedRun], most: int = MAX_REQUESTED
    ) -> list[RunKey]:
        """Insert the runs of one request, ready for their first attempt, and return their keys.

        All runs belong to one job, and all are inserted or none. If another run has one of their
        due times, all move to later ones. Raises `JobNotFound`, and `TooManyRuns` if the job would
        have more than `most` unfinished requested or retried runs.
        """

    async def cancel(self, caller: Caller, key: RunKey) -> bool:
        """Cancel an unfinished run. Returns False if an attempt may still be sent."""

    async def retry(
        self,
        caller: Caller,
        keys: Sequence[RunKey],
        *,
        delay_us: int = 0,
        spacing_us: int = 0,
        ended_by_us: int | None = None,
    ) -> set[RunKey]:
        """Retry dead or cancelled runs. Returns those that are neither, or whose job is deleted.

        The first one is due after `delay_us`, and each other one `spacing_us` after the previous.
        A run that was cancelled ahead of its time still waits for it. A run that ended after
        `ended_by_us` is left alone, and returned.
        """

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        """Record a heartbeat of a worker. Returns False if its token is stale."""

    async def heartbeats(
        self, caller: Caller, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        """Record heartbeats for many runs, in one statement. Each keeps its run for its lease.

        Without a lease it is the timeout of the job. A run that has ended is not held; one that was
        cancelled during this attempt says so.
        """

    async def read_live(self, caller: Caller, keys: Sequence[RunKey]) -> list[LiveRun]:
        """The runs that exist, in any order, to decide about their outcomes."""

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        """Write an outcome that a worker reports, like `RunStore.settle`. False if it is stale.

        Raises `RunNotFound` if the tenant has no such run.
        """

    async def answers(self, caller: Caller, settled: Sequence[Settled]) -> list[Receipt]:
        """Write many outcomes like `answer`, all or none. One for each, in order.

        `UNKNOWN` if the tenant has no such run. Two outcomes of a run are written in order.
        """
