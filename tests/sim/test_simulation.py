"""Whole worlds from seeds, each judged by the checker.

`SIM_SEEDS=1 SIM_FIRST=4711` replays a world.
"""

import asyncio
import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context

import msgspec
import pytest
from tests.marks import first_cases
from tests.sim.api import WRITES
from tests.sim.fates import CRASHES, STATEMENTS, Fate
from tests.sim.seeds import (
    KEPT,
    KEPT_BEFORE_APPLICATIONS,
    KEPT_BEFORE_CALLS,
    KEPT_BEFORE_PLACES,
    KEPT_BEFORE_QUEUES,
    KEPT_BEFORE_TRAPS,
    KEPT_WITH_FAILOVERS,
    Verdict,
    judge,
    simulate,
)

COUNT = int(os.environ.get("SIM_SEEDS", "300"))
FIRST = int(os.environ.get("SIM_FIRST", "10000"))
FEW = min(COUNT, 12)
ENOUGH = 300  # worlds, for every fate of every statement to be among them
TAKEOVER_P99_S = 8
SECONDS_PER_SEED = 5  # far more than it takes: what hangs is to end


def collect_seldom() -> None:
    """Spares a process most of its garbage collections: what it has imported stays anyway."""
    gc.freeze()
    gc.set_threshold(50_000)


def judge_all(seeds: Iterable[int]) -> dict[int, Verdict]:
    """The verdicts of many seeds, on all cores; what is found is told at once."""
    spawn = get_context("spawn")
    verdicts: dict[int, Verdict] = {}
    with ProcessPoolExecutor(mp_context=spawn, initializer=collect_seldom) as pool:
        seeds = list(seeds)
        for seed, verdict in zip(seeds, pool.map(judge, seeds, chunksize=5), strict=True):
            verdicts[seed] = verdict
            for finding in told({seed: verdict}):
                print(f"\n{finding}", flush=True)
            if len(verdicts) % 500 == 0:
                print(f"\n{len(verdicts)} worlds, the last of seed {seed}", flush=True)
    return verdicts


def told(verdicts: dict[int, Verdict]) -> list[str]:
    """What was found, with the seed to find it again."""
    return [
        f"seed {seed}: {finding.name} {finding.job} {finding.due_us} {finding.detail}"
        for seed, verdict in verdicts.items()
        for finding in verdict.report.findings
    ]


def spared(verdicts: Iterable[Verdict]) -> list[str]:
    """The statements at which no shard has died, or none has missed that its own was done."""
    struck = {(name, fate) for verdict in verdicts for name, fate in verdict.struck}
    kinds = {"crash": CRASHES, "ambiguous": (Fate.AMBIGUOUS,)}
    return [
        f"{kind} at {name}"
        for kind, fates in kinds.items()
        for name in STATEMENTS
        if not any((name, fate) in struck for fate in fates)
    ]


def unspoken(verdicts: Iterable[Verdict]) -> list[str]:
    """The verbs of which no process of the API has died between its commit and its answer."""
    called = {one for verdict in verdicts for one in verdict.called}
    return [
        verb
        for verb, statement in WRITES.items()
        if (f"{verb}: {statement}", Fate.CRASH_AFTER) not in called
    ]


@pytest.mark.proof
def test_what_was_found_once_is_not_found_again() -> None:
    before = (*KEPT_BEFORE_APPLICATIONS, *KEPT_BEFORE_TRAPS, *KEPT_BEFORE_PLACES)
    later = (*KEPT_BEFORE_CALLS, *KEPT_WITH_FAILOVERS, *KEPT_BEFORE_QUEUES, *KEPT)
    assert told(judge_all((*before, *later))) == []


def test_every_promise_holds_in_a_few_worlds() -> None:
    assert told(judge_all(range(FIRST, FIRST + FEW))) == []


@pytest.mark.proof
@pytest.mark.timeout(60 + SECONDS_PER_SEED * COUNT)
def test_every_promise_holds_in_every_world() -> None:
    verdicts = judge_all(range(FIRST, FIRST + COUNT))
    assert told(verdicts) == []
    if COUNT >= ENOUGH:
        assert spared(verdicts.values()) == []
        assert unspoken(verdicts.values()) == []
    reports = [verdict.report for verdict in verdicts.values()]
    runs = sum(report.runs for report in reports)
    duplicates = sum((report.duplicates for report in reports), Counter[str]())
    print(f"\n{COUNT} worlds from seed {FIRST}: {runs} runs, nothing lost, early or stale")
    print(f"duplicates, by the fault that explains them: {dict(duplicates)}")
    takeovers_us = sorted(took for report in reports for took in report.takeovers_us)
    if takeovers_us:
        p50_s, p99_s, longest_s = (
            takeovers_us[int((len(takeovers_us) - 1) * share)] / 1e6 for share in (0.5, 0.99, 1)
        )
        print(f"{len(takeovers_us)} takeovers: p50 {p50_s:.1f} s, p99 {p99_s:.1f} s,")
        print(f"the longest after {longest_s:.1f} s")
        assert p99_s <= TAKEOVER_P99_S


DIGEST = """
import asyncio, sys
from tests.sim.test_simulation import digest_of
print(asyncio.run(digest_of(int(sys.argv[1]))))
"""


async def digest_of(seed: int) -> str:
    return sha256(msgspec.json.encode(await simulate(seed))).hexdigest()


@pytest.mark.parametrize("seed", first_cases(2, [10, 10000, 2070, 20065, 54003]))
def test_a_seed_replays_exactly(seed: int) -> None:
    here = asyncio.run(digest_of(seed))
    assert asyncio.run(digest_of(seed)) == here
    elsewhere = subprocess.run(
        [sys.executable, "-c", DIGEST, str(seed)],
        env=os.environ | {"PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert elsewhere.stdout.strip() == here
