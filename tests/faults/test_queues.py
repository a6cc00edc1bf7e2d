"""What workers that pull had in hand is neither lost nor handed out too early."""

from tests.faults import queues
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(queues.SCENARIOS)
async def test_queues(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
