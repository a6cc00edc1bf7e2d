"""Faults of every family, mixed by a seed that is printed."""

import random

import pytest
from tests.faults.cases import hold
from tests.faults.server import Server
from tests.faults.soak import SCENARIO

pytestmark = pytest.mark.proof  # minutes of mixed faults


@pytest.mark.timeout(SCENARIO.limit_s + 60)
async def test_soak(server: Server) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    await hold(SCENARIO, server, seed)
