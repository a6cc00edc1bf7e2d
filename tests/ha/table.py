"""Failovers as a Markdown table."""

from collections.abc import Iterable

from tests.ha.experiment import Result

HEAD = (
    "| fault | replication | runs | lost | duplicates | acknowledged jobs lost "
    "| firing again after, s: first / every job | verdict | remarks |\n"
    "|---|---|---:|---:|---:|---:|---:|---|---|\n"
)


def write_table(results: Iterable[Result]) -> str:
    """One row for each. A duplicate that a fault explains is counted with that fault."""
    return HEAD + "".join(_row(result) for result in results)


def _row(result: Result) -> str:
    verdict = result.verdict
    found = verdict.found
    cells = [
        verdict.name,
        result.failover.replication,
        f"{verdict.runs:,}",
        str(found["lost"] + found["stuck"] + found["phantom"]),
        _duplicates(result),
        str(found["vanished"] + verdict.forgotten_jobs),
        _again(result),
        verdict.word,
        "; ".join([*verdict.remarks, *verdict.slow, *(text[:80] for text in verdict.broken[:3])]),
    ]
    return f"| {' | '.join(cells)} |\n"


def _duplicates(result: Result) -> str:
    """Those that nothing explains, and the others by what explains them."""
    found = result.verdict.found
    unexplained = found["duplicated"] + found["armed_twice"]
    explained = ", ".join(f"{n} by {kind}" for kind, n in result.verdict.explained.items())
    return f"{unexplained} ({explained})" if explained else str(unexplained)


def _again(result: Result) -> str:
    first_us = max(result.verdict.returns_us, default=0)
    every_us = result.all_again_us or 0
    return f"{first_us / 1_000_000:.1f} / {every_us / 1_000_000:.1f}"
