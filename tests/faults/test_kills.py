"""What killed shards held is neither lost nor doubled."""

from tests.faults import kills
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(kills.SCENARIOS, smoke="kill -9, sent and not answered")
async def test_kills(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
