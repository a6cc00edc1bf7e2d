"""Every scenario, by family."""

from tests.faults import (
    backlog,
    callbacks,
    database,
    deaths,
    fleet,
    freezes,
    kills,
    million,
    network,
    queues,
    soak,
    workers,
)

FAMILIES = (
    kills.SCENARIOS,
    deaths.SCENARIOS,
    freezes.SCENARIOS,
    database.SCENARIOS,
    network.SCENARIOS,
    workers.SCENARIOS,
    callbacks.SCENARIOS,
    queues.SCENARIOS,
    fleet.SCENARIOS,
    backlog.SCENARIOS,
    [soak.SCENARIO],
    million.SCENARIOS,
)
