"""Whatever becomes of the way to the database, nothing is claimed twice."""

from tests.faults import network
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(network.SCENARIOS)
async def test_network(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
