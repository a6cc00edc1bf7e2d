"""Every scenario, by family."""

from tests.faults import database, fleet, freezes, kills, million, network, soak, workers

FAMILIES = (
    kills.SCENARIOS,
    freezes.SCENARIOS,
    database.SCENARIOS,
    network.SCENARIOS,
    workers.SCENARIOS,
    fleet.SCENARIOS,
    [soak.SCENARIO],
    million.SCENARIOS,
)
