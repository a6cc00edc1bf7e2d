"""The queues between the stages. The pipeline builds them first and hands them to the stages.

Invariant: a queue has one reader and a bound. `max_armed` and the limit on requests in flight bound
the runs. Jobs and partitions are in sets, each at most once.
"""

import asyncio
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import Run, RunKey
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.flow import Inbox, Pending
from wheelsched.shard.firing.timetable import DueRuns, Timetable
from wheelsched.shard.loading.hint_freshness import Reloads
from wheelsched.shard.loading.upcoming import Upcoming
from wheelsched.shard.runs.armed_run import ArmedRun, Batch
from wheelsched.shard.runs.handed_out import HandedOutRuns
from wheelsched.shard.runs.parked import ParkedRuns
from wheelsched.shard.settling.finish import EndingJobs
from wheelsched.shard.settling.results import ResultQueue


class ExternalRun(NamedTuple):
    """A run that a worker has accepted, or that another shard, its carrier, will finish."""

    run: ArmedRun
    is_adopted: bool = False
    carrier: UUID | None = None


class Queues(Struct, frozen=True, eq=False, kw_only=True):
    """The queues of one shard. The registry has three more, which *fire* reads."""

    reloads: Reloads  # all stages -> load
    upcoming: Upcoming  # load, settle -> arm
    timetable: Timetable  # fire: runs that wait for their time
    due: DueRuns  # timetable -> fire
    outgoing: FairQueue[Batch]  # fire: requests that wait to be sent
    parked: ParkedRuns  # fire: runs that wait for a worker without their request
    handed_out: HandedOutRuns  # fire, adopt -> external runs
    doubtful: Inbox[ArmedRun | RunKey]  # fire, arm, adopt -> revalidate
    revalidated: Inbox[ArmedRun]  # revalidate -> fire
    results: ResultQueue  # fire, arm, revalidate, recovery -> settle
    ending: EndingJobs  # load, arm, settle -> finish
    accepted: Inbox[ExternalRun]  # settle, adopt -> external runs
    abandoned: Inbox[Run]  # external runs -> adopt
    gained: Pending[int]  # acquire -> sweep
    drafts: asyncio.Event  # listener, acquire -> plan
    free_partitions: asyncio.Event  # listener -> acquire
