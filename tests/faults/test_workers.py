"""A worker hurts only itself."""

from tests.faults import workers
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(workers.SCENARIOS)
async def test_workers(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
