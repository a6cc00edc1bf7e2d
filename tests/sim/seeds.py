"""From a seed to a verdict."""

import asyncio
import logging

import structlog
from msgspec import Struct
from tests.checker.check import check
from tests.checker.findings import Report
from tests.checker.records import History
from tests.sim.fates import Fate
from tests.sim.luck import Luck, Wanted
from tests.sim.mutants import Mutant
from tests.sim.setting import draw_roomy_setting, draw_setting
from tests.sim.simulation import Simulation

# Seeds that have found something, and what it was. They run always; a change of what the simulation
# draws may make one of them look elsewhere. Each finds its world without what was added since.
KEPT_BEFORE_APPLICATIONS = {
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
KEPT_BEFORE_TRAPS = {
    54003: "a job cancelled while it was late is told of by the first due time that had passed",
    55002: "not the product: nobody had planned what its application cancelled",
}


KEPT_BEFORE_PLACES = {
    405: "a carried run was sent after its application had long cancelled its job",
    885: "not the product: a retry of what had begun before the clock was set back was early",
    1060: "a carried run of a deleted job was ended by the next owner, and sent by its carrier",
    1391: "a retry was carried, cancelled by the next owner, and sent",
    1741: "not the product: the client did not note what its deletion came too late for",
    1877: "not the product: a shard had said that its clock was off by so much",
    1590: "not the product: a run before the clock was set back counted as one after it",
    3043: "not the product: a run in hand seemed to come when the clock was set back",
    3203: "not the product: a worker that always answered too late was left alone",
    10064: "not the product: nobody was there who stayed",
    50015: "a run that an edit took back unheard, and that was armed anew, was sent twice",
    675: "a retry that was held for a last look stayed armed for ever after it was sent",
    70016: "a heartbeat of the attempt before made a worker seem silent to the next owner",
}


KEPT_BEFORE_CALLS: dict[int, str] = {
    2564: "not the product: a run was cancelled in favour of one that waited for a place",
    6964: "not the product: a job was due nine milliseconds after it was resumed",
    10457: "not the product: a next owner sent an earlier run after a later one",
    8969: "a run that waited for its turn was early when the clock was set back",
    169: "not the product: a run was cancelled in favour of one that was handed over and skipped",
}


KEPT_WITH_FAILOVERS: dict[int, str] = {
    20007: "a carried run was sent with its old token after the database had gone back",
    50755: "a shard that carried runs of its workers fell over its own registry after a restart",
    50571: "a carried run was adopted, handed over unsent, and then nobody's",
}


KEPT_BEFORE_QUEUES: dict[int, str] = {
    6105: "a carried run was adopted, forgotten unsent after a failover, and then nobody's",
    5741: "an acquisition that had no answer brought its epoch back after a failover",
    70232: "a mark that was repeated after an outage hid a run whose end was forgotten",
    180: "a delayed acquisition took the epochs that the shard knew when it was executed",
    570: "not the product: a shard that was leaving, and was then killed, was to take over",
    794: "not the product: a run overlapped with one whose shard died before it was sent",
    3141: "not the product: the clock was set back behind an epoch that a failover had forgotten",
    3563: "not the product: a failover forgot an epoch that the clock was behind",
    2918: "not the product: a shard that was falsely declared dead did not know of another run",
    5498: "not the product: a failover forgot that a job was resumed, and a run armed anew",
    4221: "not the product: an attempt whose claim was forgotten counted as one of the next life",
    3180: "not the product: a run gave way to due times that one skip stands for by now",
    1624: "not the product: a run was named by the answer to its cancel, and by no later one",
}


KEPT: dict[int, str] = {
    690: "a run was carried through a hand-over beside one that a worker might still have",
    745: "a run that was carried for the last credit was forgotten by its carrier",
    861: "not the product: a run gave way to due times of a job that a transaction then cancelled",
    910: "not the product: a heartbeat came before a shard could write that the run was cancelled",
    898: "not the product: a run gave way to one that waited for a worker until it was too late",
    88025: "the next owner skipped a run that waited for a worker, for one that waited for it",
    88288: "in a hand-over a run began beside one that a former owner had handed out",
    1592: "not the product: a worker could report an outcome only later, and a failover lost it",
}


class Verdict(Struct):
    """What the checker says of a world, and which fates the statements of its shards have had; and
    those of the API."""

    report: Report
    struck: set[tuple[str, Fate]]
    called: set[tuple[str, Fate]]


def judge(seed: int) -> Verdict:
    """From the seed to the end of its world. A process of it that dies by itself raises."""
    world, wanted = _draw(seed)
    try:
        report = check(asyncio.run(_live(world, wanted)))
        return Verdict(report, world.struck, world.callers.api.struck)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


def judge_mutant(seed: int, mutant: Mutant) -> Report:
    """The same for a product that is broken."""
    world = Simulation(seed)
    wanted = Wanted(
        faults=mutant.faults,
        requests=mutant.requests,
        transactions=mutant.transactions,
        traps=0,
        calls=mutant.calls,
        failovers=0,
        queues=mutant.queues,
        queue_faults=mutant.queue_faults,
    )
    with mutant.break_it(world):
        return check(asyncio.run(_live(world, wanted)))


async def simulate(seed: int) -> History:
    """Runs the world of a seed to its end."""
    return await _live(*_draw(seed))


async def _live(world: Simulation, wanted: Wanted) -> History:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return await Luck(world, wanted).live()


def _draw(seed: int) -> tuple[Simulation, Wanted]:
    if seed in KEPT_BEFORE_APPLICATIONS:
        return Simulation(seed), Wanted(transactions=0, traps=0, calls=0, failovers=0, queues=0)
    if seed in KEPT_BEFORE_TRAPS:
        return Simulation(seed), Wanted(traps=0, calls=0, failovers=0, queues=0)
    if seed in KEPT_BEFORE_PLACES:
        return Simulation(seed, draw_roomy_setting(seed)), Wanted(calls=0, failovers=0, queues=0)
    if seed in KEPT_BEFORE_CALLS:
        return Simulation(seed, draw_setting(seed)), Wanted(calls=0, failovers=0, queues=0)
    if seed in KEPT_WITH_FAILOVERS:
        return Simulation(seed, draw_setting(seed)), Wanted(calls=0, failovers=2, queues=0)
    if seed in KEPT_BEFORE_QUEUES:
        return Simulation(seed, draw_setting(seed)), Wanted(queues=0)
    return Simulation(seed, draw_setting(seed)), Wanted()
