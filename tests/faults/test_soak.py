"""Faults of every family, mixed by a seed that is printed."""

import random

import pytest
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server
from tests.faults.soak import CI_SOAK_S, SCENARIOS, soak_scenario

SHORT = soak_scenario("a short soak", CI_SOAK_S)


@pytest.mark.timeout(SHORT.limit_s + 60)
async def test_a_short_soak(server: Server) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    await hold(SHORT, server, seed)


@cases(SCENARIOS)
async def test_soak(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
