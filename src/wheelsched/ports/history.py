"""The history of runs, for those who read it, and for those who ask for a run or report one.

Invariant: a caller sees the runs of its tenant and no other.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Raw, Struct

from wheelsched.core.model import Attempt, Run, RunKey, RunState, Trigger
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.ports.runs import Settled
from wheelsched.ports.tenants import Caller


class RequestedRun(Struct, frozen=True, kw_only=True):
    """A run that a person asks for.

    `request_id` is that of the request, where it may be sent again: it finds its runs by it.
    `payload` is sent in the place of the job's.
    """

    key: RunKey
    trigger: Trigger
    backfill_of_us: int | None = None
    request_id: UUID | None = None
    payload: Raw | None = None


class DeadFilter(Struct, frozen=True, kw_only=True):
    """Runs of a job, and due from an instant until before another, where they are given."""

    job_id: UUID | None = None
    since_us: int | None = None
    until_us: int | None = None


class RunFilter(Struct, frozen=True, kw_only=True):
    """Runs due from an instant until before another; of a state and of a job, where given."""

    since_us: int
    until_us: int
    state: RunState | None = None
    job_id: UUID | None = None


class RunsFound(NamedTuple):
    """Part of a list of runs, and where the rest begins; None when there is no rest."""

    runs: list[Run]
    rest: RunKey | None


class HistoryStore(Protocol):
    """Runs of one tenant, for the API and for its workers."""

    async def get_run(self, caller: Caller, key: RunKey) -> tuple[Run, list[Attempt]]:
        """A run with its attempts, or `RunNotFound`."""

    async def list_runs(
        self, caller: Caller, job_id: UUID, limit: int, before_us: int | None = None
    ) -> list[Run]:
        """The runs of a job, latest first, before the last of a page."""

    async def list_runs_from(
        self, caller: Caller, job_id: UUID, limit: int, from_us: int
    ) -> list[Run]:
        """The runs of a job that are due from an instant on, earliest first."""

    async def list_latest(
        self, caller: Caller, wanted: RunFilter, limit: int, rest: RunKey | None = None
    ) -> RunsFound:
        """The runs of all jobs, latest first; `rest` of an earlier part continues it.

        A part may hold fewer than `limit` although there is more: the work for one part is
        bounded, not the time that it covers. Runs due at one instant are in a stable order.
        """

    async def list_dead(
        self, caller: Caller, wanted: DeadFilter, limit: int, after: RunKey | None = None
    ) -> list[Run]:
        """The runs out of attempts, oldest first, after the last of a page."""

    async def request(
        self, caller: Caller, runs: Sequence[RequestedRun], most: int = MAX_REQUESTED
    ) -> list[RunKey]:
        """Puts the runs of one request in line for their first attempt, and gives their keys.

        All are put in line or none is, and all are of one job. Where another run is due at one
        of their instants, all move to later ones. Raises `JobNotFound`, and `TooManyRuns` when
        with them more than `most` runs of the job would wait, or be tried again.
        """

    async def cancel(self, caller: Caller, key: RunKey) -> bool:
        """Ends a live run; gives whether that was in time to keep it from being sent again."""

    async def retry(
        self, caller: Caller, keys: Sequence[RunKey], *, delay_us: int = 0, spacing_us: int = 0
    ) -> set[RunKey]:
        """Puts dead or cancelled runs in line again, and gives those that are neither, or
        whose job is gone.

        The first is due after a delay, and each of the others so much after the one before.
        """

    async def heartbeat(self, caller: Caller, key: RunKey, token: int) -> bool:
        """Notes that a worker is at it; False when its token is stale."""

    async def answer(self, caller: Caller, settled: Settled) -> bool:
        """Writes the outcome that a worker reports, as `RunStore.settle` does; False when stale.

        Raises `RunNotFound` when the tenant has no such run.
        """
