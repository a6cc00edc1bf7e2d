"""What a shard held that died is neither lost nor doubled, however its death became known."""

from tests.faults import deaths
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(deaths.SCENARIOS)
async def test_deaths(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
