"""Shards come, go and die, at the hottest of times."""

from tests.faults import fleet
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(fleet.SCENARIOS)
async def test_fleet(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
