"""A frozen shard that wakes does no harm."""

from tests.faults import freezes
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(freezes.SCENARIOS)
async def test_freezes(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
