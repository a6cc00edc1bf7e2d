"""A shard without one of the rules that a failover needs breaks a promise, and is caught."""

import sys
from pathlib import Path

import pytest
from tests.faults.experiment import Load, Scenario, run_experiment
from tests.faults.judge import ABOUT_TIME, Verdict
from tests.faults.network import lease_connection_lost
from tests.faults.processes import Shard
from tests.faults.server import running_server
from tests.faults.world import World
from tests.ha.experiment import run_failover
from tests.ha.failovers import ASYNCHRONOUS, Failover, went_back_after_a_join
from tests.ha.restores import from_a_dump

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def mutant(name: str) -> type[Shard]:
    program = str(Path(__file__).with_name("mutant_shard.py"))

    class Mutant(Shard):
        command = (sys.executable, program, name, "shard")

    return Mutant


def caught(verdict: Verdict) -> set[str]:
    """What the checker found, but for what a busy machine may cause."""
    return {name for name, count in verdict.found.items() if count} - set(ABOUT_TIME)


async def test_renewals_that_are_not_checked() -> None:
    """The restored database has the lease of each shard, with fewer renewals."""
    failover = Failover(name="mutant", strike=from_a_dump, replication=ASYNCHRONOUS)
    result = await run_failover(failover, shard_type=mutant("unchecked_renewals"))
    found = caught(result.verdict)
    print(found)
    assert found


async def test_an_epoch_from_the_table_alone() -> None:
    """The shard that had joined has the epochs that others get after the failover."""
    failover = Failover(name="mutant", strike=went_back_after_a_join, replication=ASYNCHRONOUS)
    result = await run_failover(failover, shard_type=mutant("epoch_from_the_table"))
    assert {"two_owners", "token_reused"} <= caught(result.verdict)


async def test_trust_that_outlives_its_connection() -> None:
    """Another shard takes over while the one that is cut off goes on firing."""

    def prepare(world: World) -> None:
        world.shard_type = mutant("trust_without_connection")

    load = Load(one_offs=2_000)  # at any time of a second, so that some are due in any window
    scenario = Scenario(name="mutant", strike=lease_connection_lost, prepare=prepare, load=load)
    async with running_server() as server:
        verdict = await run_experiment(scenario, server)
    assert caught(verdict) & {"duplicated", "sent_after_takeover"}
