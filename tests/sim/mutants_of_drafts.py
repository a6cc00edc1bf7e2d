"""Mutants of what applications write: of drafts, their planning, and their transactions."""

from collections.abc import Collection, Iterator, Sequence
from unittest.mock import patch
from uuid import UUID

from msgspec.structs import replace
from tests.sim import simulation
from tests.sim.mutants import mutant
from tests.sim.simulation import Simulation

from wheelsched.core.model import Draft
from wheelsched.core.targets.egress import EgressRules
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import Lease, Plan, Planned, Registration, Unplanned
from wheelsched.testing.application import MemoryTransaction
from wheelsched.testing.plans import MemoryPlans
from wheelsched.testing.tables import MemoryTables


@mutant("unplanned", faults=("crash_planning",) * 3, transactions=25)
def draft_forgotten_when_planning_fails(_: Simulation) -> Iterator[None]:
    """Whoever has seen a draft strikes it off the list, before it is planned."""
    list_unplanned = MemoryPlans.list_unplanned

    async def strike_off(
        self: MemoryPlans, partitions: Collection[int], limit: int
    ) -> list[Unplanned]:
        page = await list_unplanned(self, partitions, limit)
        for entry in page:
            if entry.draft is not None:
                del self._tables.unplanned[entry.number]
        return page

    with patch.object(MemoryPlans, "list_unplanned", strike_off):
        yield


@mutant("lost", faults=("cut_everybody",), transactions=25)
def planned_from_now(world: Simulation) -> Iterator[None]:
    """A draft is judged as if it had been written when it is planned."""

    def judge_late(draft: Draft, rules: EgressRules) -> Registration:
        return judge_draft(replace(draft, created_at_us=world.database_us()), rules)

    with patch.object(simulation, "judge_draft", judge_late):
        yield


@mutant("uncommitted", faults=("join",), transactions=10)
def rollback_that_commits(_: Simulation) -> Iterator[None]:
    with patch.object(MemoryTransaction, "rollback", MemoryTransaction.commit):
        yield


@mutant("misjudged", faults=("join",), transactions=25)
def refused_without_a_reason(_: Simulation) -> Iterator[None]:
    plan = MemoryPlans.plan

    async def say_nothing(self: MemoryPlans, lease: Lease, plans: Sequence[Plan]) -> Planned:
        return await plan(self, lease, [replace(one, error=one.error and "") for one in plans])

    with patch.object(MemoryPlans, "plan", say_nothing):
        yield


@mutant("fired_while_paused", faults=("join",), transactions=40)
def cancelled_without_a_hint(_: Simulation) -> Iterator[None]:
    """Nobody is told that an application has changed something: what is armed goes out."""
    hint = MemoryTables.hint

    def whisper(self: MemoryTables, job_id: UUID, *, is_unplanned: bool = False) -> None:
        if not is_unplanned:
            hint(self, job_id)

    with patch.object(MemoryTables, "hint", whisper):
        yield
