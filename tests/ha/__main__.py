"""`python -m tests.ha`: every failover, one after the other, and a table of what came out."""

import argparse
import asyncio
import sys
import time
import traceback
from pathlib import Path

from tests.faults.judge import Verdict
from tests.ha.experiment import Result, run_failover
from tests.ha.failovers import SCENARIOS, Failover
from tests.ha.programs import find_programs
from tests.ha.table import write_table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run what has this in its name")
    parser.add_argument("--table", type=Path, default=Path("build/ha.md"))
    options = parser.parse_args()
    chosen = [one for one in SCENARIOS if options.only in f"{one.name}, {one.replication}"]
    if not chosen:
        parser.error(f"no failover has {options.only!r} in its name")
    find_programs()
    options.table.parent.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for failover in chosen:
        evidence = options.table.with_name(f"{options.table.stem}-{len(results) + 1}.json")
        results.append(asyncio.run(_tell(failover, evidence)))
        options.table.write_text(write_table(results))
    print(write_table(results))
    return 0 if all(result.verdict.word == "kept" for result in results) else 1


async def _tell(failover: Failover, evidence: Path) -> Result:
    began = time.monotonic()
    try:
        result = await run_failover(failover, evidence)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is the verdict
        traceback.print_exc()
        verdict = Verdict(name=failover.name, broken=(f"not carried out: {error!r}",))
        result = Result(failover, verdict)
    verdict = result.verdict
    name = f"{failover.name}, {failover.replication}"
    print(f"{time.monotonic() - began:6.1f} s  {verdict.word:7}  {name}", flush=True)
    for text in (*verdict.broken[:10], *verdict.slow, *verdict.remarks):
        print(f"          {text}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
