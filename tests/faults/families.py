"""Every scenario, by family."""

from tests.faults import backlog, database, fleet, freezes, kills, million, network, soak, workers

FAMILIES = (
    kills.SCENARIOS,
    freezes.SCENARIOS,
    database.SCENARIOS,
    network.SCENARIOS,
    workers.SCENARIOS,
    fleet.SCENARIOS,
    backlog.SCENARIOS,
    [soak.SCENARIO],
    million.SCENARIOS,
)
