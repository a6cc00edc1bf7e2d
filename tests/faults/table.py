"""Verdicts as a Markdown table."""

from collections.abc import Iterable

from tests.faults.judge import Verdict, quantile

HEAD = (
    "| fault | runs | lost | early | duplicated | stale | takeover p50 / p99 / max, s "
    "| lateness p99, ms | verdict | remarks |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n"
)


def write_table(verdicts: Iterable[Verdict]) -> str:
    """One row for each. A duplicate that a fault explains is counted with that fault."""
    return HEAD + "".join(_row(verdict) for verdict in verdicts)


def _row(verdict: Verdict) -> str:
    if not verdict.is_available:
        cells = [verdict.name, *[""] * 7, verdict.word, "; ".join(verdict.remarks)]
        return f"| {' | '.join(cells)} |\n"
    found = verdict.found
    cells = [
        verdict.name,
        f"{verdict.runs:,}",
        str(found["lost"] + found["stuck"] + found["phantom"]),
        str(found["early"]),
        _duplicates(verdict),
        str(found["stale_write"] + found["sent_after_end"]),
        _takeovers(verdict),
        f"{quantile(verdict.lateness_us, 0.99) / 1_000:,.0f}",
        verdict.word,
        _remarks(verdict),
    ]
    return f"| {' | '.join(cells)} |\n"


def _duplicates(verdict: Verdict) -> str:
    unexplained = verdict.found["duplicated"] + verdict.found["armed_twice"]
    explained = ", ".join(f"{count} by {kind}" for kind, count in verdict.explained.items())
    return f"{unexplained} ({explained})" if explained else str(unexplained)


def _takeovers(verdict: Verdict) -> str:
    if not verdict.takeovers_us:
        return "–"
    shares = [quantile(verdict.takeovers_us, share) / 1_000_000 for share in (0.5, 0.99, 1)]
    return " / ".join(f"{share:.1f}" for share in shares)


def _remarks(verdict: Verdict) -> str:
    remarks = [*verdict.remarks, *verdict.slow, *(text[:80] for text in verdict.broken[:3])]
    if verdict.returns_us:
        longest_s = max(verdict.returns_us) / 1_000_000
        remarks.insert(0, f"firing {longest_s:.1f} s after Postgres was back")
    return "; ".join(remarks)
