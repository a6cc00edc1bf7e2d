"""Very many runs of one job hold up no other, and none of them is lost when their shard dies."""

from tests.faults import backlog
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(backlog.SCENARIOS)
async def test_backlogs(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
