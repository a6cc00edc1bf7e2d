"""Whatever becomes of the database, every due time is accounted for."""

from tests.faults import database
from tests.faults.cases import cases, hold
from tests.faults.experiment import Scenario
from tests.faults.server import Server


@cases(database.SCENARIOS)
async def test_database(scenario: Scenario, server: Server) -> None:
    await hold(scenario, server)
