"""Mutants of how runs end, and of what they say they are."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import replace
from tests.sim.mutants import mutant
from tests.sim.simulation import Simulation

from wheelsched.core.model import RunKey, RunState, SkipReason
from wheelsched.core.partition import partition_of
from wheelsched.ports import Callback, Lease, Route
from wheelsched.shard.firing.fire import Admission
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.settling.results import Ruling
from wheelsched.testing.dispatcher import MemoryDispatcher, MemoryPrepared
from wheelsched.testing.runs import MemoryRuns


@contextmanager
def _half_end_unsent(
    world: Simulation, end: Callable[[Admission, ArmedRun], None]
) -> Iterator[None]:
    """Of the runs whose time has come, half come to an end instead."""
    clear, random = Admission.admit, world.source("unsent")

    def admit_badly(self: Admission, runs: Iterable[ArmedRun], now_us: int) -> list[ArmedRun]:
        left = []
        for run in runs:
            is_ours = self._context.ownership.holds(partition_of(run.key.job_id))
            if run.is_first and is_ours and random.random() < 0.5:
                end(self, run)
            else:
                left.append(run)
        return clear(self, left, now_us)

    with patch.object(Admission, "admit", admit_badly):
        yield


@mutant("groundless", faults=("crash",))
def skipped_for_nothing(world: Simulation) -> Iterator[None]:
    with _half_end_unsent(world, lambda self, run: self._skip(run, SkipReason.OVERLAP)):
        yield


@mutant("groundless", faults=("crash",))
def dead_without_an_attempt(world: Simulation) -> Iterator[None]:
    def bury(self: Admission, run: ArmedRun) -> None:
        self._context.registry.disarm(run)
        dead = Ruling(key=run.key, token=run.token, state=RunState.DEAD, error="tired")
        self._results.put(dead)

    with _half_end_unsent(world, bury):
        yield


@mutant("outlived", faults=("join",))
def a_later_run_ends_nobody(_: Simulation) -> Iterator[None]:
    """It goes out, and the earlier one is tried again (`overlap=cancel`)."""
    with patch.object(Admission, "_cancel", lambda *_: None):
        yield


@mutant("sent_after_end", faults=("crash",) * 2, requests=4)
def sweep_takes_up_what_has_succeeded(_: Simulation) -> Iterator[None]:
    """Of what a dead shard leaves behind, also what it has brought to its end just before."""
    list_unfinished = MemoryRuns.list_unfinished

    async def list_more(
        self: MemoryRuns,
        lease: Lease,
        partitions: Collection[int],
        limit: int,
        after: Mapping[int, RunKey] | None = None,
        **named: bool,
    ) -> list[RunKey]:
        since_us = self._tables.now_us() - 12_000_000
        for row in self._tables.runs.values():
            is_recent = (row.run.finished_at_us or 0) > since_us and self._is_known(row)
            is_theirs = row.run.shard != lease.shard_id and self._tables.owns(lease, row.run.job_id)
            if row.run.state is RunState.SUCCEEDED and is_recent and is_theirs:
                row.run = replace(row.run, state=RunState.ARMED, finished_at_us=None, attempt=0)
        return await list_unfinished(self, lease, partitions, limit, after, **named)

    with patch.object(MemoryRuns, "list_unfinished", list_more):
        yield


@mutant("mislabelled", faults=("join",))
def labelled_as_the_one_before(_: Simulation) -> Iterator[None]:
    """Each run is sent on time, and says that it is the run of its job before it."""
    prepare = MemoryDispatcher.prepare
    prepared: dict[str, list[Callback]] = {}

    def prepare_mixed(self: MemoryDispatcher, route: Route, callback: Callback) -> MemoryPrepared:
        earlier = prepared.setdefault(str(callback.key.job_id), [])
        earlier.append(callback)
        before = max(
            (one for one in earlier if one.key.due_us < callback.key.due_us),
            key=lambda one: one.key.due_us,
            default=callback,
        )
        mixed = replace(callback, key=before.key, scheduled_us=before.scheduled_us)
        return prepare(self, route, mixed)

    with patch.object(MemoryDispatcher, "prepare", prepare_mixed):
        yield
