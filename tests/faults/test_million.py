"""Many runs without a fault; `make faults` makes a million of them."""

from tests.faults import million
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(million.SCENARIOS)
async def test_million(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
