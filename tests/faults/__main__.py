"""`python -m tests.faults`: every experiment, one after the other, and a table of what came out."""

import argparse
import asyncio
import sys
import time
import traceback
from pathlib import Path

from tests.faults.experiment import Scenario, run_experiment
from tests.faults.families import FAMILIES
from tests.faults.judge import Verdict
from tests.faults.server import Server, running_server
from tests.faults.table import write_table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run what has this in its name")
    parser.add_argument("--table", type=Path, default=Path("build/faults.md"))
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    chosen = [one for family in FAMILIES for one in family if options.only in one.name]
    if not chosen:
        parser.error(f"no fault has {options.only!r} in its name")
    options.table.parent.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}", flush=True)
    verdicts = asyncio.run(_run_all(chosen, options.seed, options.table))
    print(write_table(verdicts))
    return 0 if all(verdict.word in ("kept", "not available here") for verdict in verdicts) else 1


async def _run_all(chosen: list[Scenario], seed: int, table: Path) -> list[Verdict]:
    """The table grows with each, so that what is there so far can be read."""
    verdicts: list[Verdict] = []
    async with running_server() as server:
        for scenario in chosen:
            evidence = table.with_name(f"{table.stem}-{seed}-{len(verdicts) + 1}.json")
            verdicts.append(await _tell(scenario, server, seed, evidence))
            table.write_text(write_table(verdicts))  # noqa: ASYNC240 - nobody waits
    return verdicts


async def _tell(scenario: Scenario, server: Server, seed: int, evidence: Path) -> Verdict:
    began = time.monotonic()
    try:
        verdict = await run_experiment(scenario, server, seed, evidence)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is the verdict
        traceback.print_exception(error)
        verdict = Verdict(name=scenario.name, broken=(f"not carried out: {error!r}",))
    print(f"{time.monotonic() - began:6.1f} s  {verdict.word:7}  {scenario.name}", flush=True)
    for text in (*verdict.broken, *verdict.slow):
        print(f"          {text}", flush=True)
    if evidence.exists():  # noqa: ASYNC240 - nobody waits
        print(f"          its logs: {evidence}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
