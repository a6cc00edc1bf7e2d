"""Faults of every family, mixed by a seed that is printed."""

import random

from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario, run_experiment
from tests.faults.server import Server
from tests.faults.soak import CI_SOAK_S, SCENARIOS, soak_scenario


async def test_a_short_soak(server: Server) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    scenario = soak_scenario("a short soak", CI_SOAK_S)
    verdict = await run_experiment(scenario, server, seed)
    assert not verdict.broken, "\n".join(verdict.broken)


@cases(SCENARIOS)
async def test_soak(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
