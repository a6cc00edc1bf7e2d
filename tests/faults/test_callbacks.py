"""A callback changes nothing of the installation, wherever it goes."""

from tests.faults import callbacks
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(callbacks.SCENARIOS)
async def test_callbacks(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
