"""From a seed to a verdict."""

import asyncio
import logging

import structlog
from tests.checker.check import check
from tests.checker.findings import Report
from tests.checker.records import History
from tests.sim.luck import Luck
from tests.sim.mutants import Mutant
from tests.sim.simulation import Simulation

# Seeds that have found something, and what it was. They run always; a change of what the simulation
# draws may make one of them look elsewhere. When these were found there were no applications.
KEPT = {
    3: "a run whose start nobody knows could not fail",
    10: "a carried run that was accepted was sent again when its carrier left",
    63: "a carried run that was accepted was never given up on",
    90: "the retry of a deleted job was armed and forgotten",
    380: "a job that was deleted during its claim fired",
    2070: "a run that was answered during the sweep was forgotten",
    2186: "a hand-over took the 202 of a run away",
    20065: "an earlier attempt, silent or stale, ended a run that was accepted again",
    90041: "not the product: a run whose sending nobody had written counted as live",
    78015: "a pause of a job that its worker had paused left what was armed",
    30101: "a late look at an attempt that was over ended its run",
    10179: "a run was taken for ended while its next attempt was armed",
}
KEPT_WITH_APPLICATIONS = {
    54003: "a job cancelled while it was late is told of by the first due time that had passed",
    55002: "not the product: nobody had planned what its application cancelled",
}


async def simulate(seed: int) -> History:
    """Runs the world of a seed to its end."""
    _be_quiet()
    transactions = 0 if seed in KEPT else None
    return await Luck(Simulation(seed), transactions=transactions).live()


def judge(seed: int) -> Report:
    """What the checker says of a seed. A process of the world that dies by itself raises."""
    return check(asyncio.run(simulate(seed)))


def judge_mutant(seed: int, mutant: Mutant) -> Report:
    """The same for a product that is broken."""

    async def simulate_broken() -> History:
        _be_quiet()
        world = Simulation(seed)
        with mutant.break_it(world):
            return await Luck(world, mutant.faults, mutant.requests, mutant.transactions).live()

    return check(asyncio.run(simulate_broken()))


def _be_quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
