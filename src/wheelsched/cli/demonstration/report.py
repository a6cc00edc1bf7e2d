"""Presents the evidence: numbers first, then histograms.

Invariant: programs and people get the same numbers, and all are computed from the evidence.
"""

import os
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wheelsched.cli.demonstration.evidence import Evidence
from wheelsched.core.histogram import Histogram
from wheelsched.values.duration import MILLISECOND, SECOND

FIRST_EDGE_US: Final = MILLISECOND
BAR: Final = 40


def data_of(evidence: Evidence) -> dict[str, Any]:
    """The numbers as data, for --json."""
    takeover_us, ownership_us = evidence.takeover_us, evidence.ownership_us
    return {
        "one_offs": {"expected": evidence.expected_one_offs, "arrived": evidence.arrived_one_offs},
        "recurring": {
            "expected": evidence.expected_recurring,
            "arrived": evidence.arrived_recurring,
        },
        "lost": evidence.lost,
        "early": evidence.early,
        "duplicates": len(evidence.duplicates),
        "duplicates_unexplained": evidence.unexplained,
        "done_twice": evidence.done_twice,
        "registered_per_second": round(_rate(evidence)),
        "took_s": evidence.took_us / SECOND,
        "ownership_ms": None if ownership_us is None else ownership_us / MILLISECOND,
        "takeover_ms": None if takeover_us is None else takeover_us / MILLISECOND,
        "lateness_ms": {
            name: {
                "runs": histogram.count,
                "p50": histogram.quantile(0.5) / MILLISECOND,
                "p99": histogram.quantile(0.99) / MILLISECOND,
                "max": histogram.max_us / MILLISECOND,
            }
            for name, histogram in evidence.phases()
        },
    }


def text_of(evidence: Evidence) -> RenderableType:
    """The numbers and histograms as text."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(evidence):
        table.add_row(name, text)
    pictures = [
        part
        for name, histogram in evidence.phases()
        if histogram.count
        for part in _histogram_lines(name, histogram)
    ]
    return Group(table, *pictures)


def _lines(evidence: Evidence) -> Iterator[tuple[str, Text]]:
    yield (
        "registered",
        Text(f"{evidence.expected_one_offs:,} one-offs, {_rate(evidence):,.0f} per second"),
    )
    yield (
        "arrived",
        Text(
            f"{evidence.arrived_one_offs:,} of {evidence.expected_one_offs:,} one-offs, "
            f"{evidence.arrived_recurring:,} of {evidence.expected_recurring:,} recurring runs"
        ),
    )
    lost, early = evidence.lost, evidence.early
    yield "lost", Text(f"{lost:,}", style="bold red" if lost else "bold green")
    yield "early", Text(f"{early:,}", style="bold red" if early else "")
    yield "duplicated", Text(_duplicates(evidence))
    if evidence.kill is not None:
        yield "takeover", Text(_takeover(evidence))
    yield "took", Text(f"{evidence.took_us / SECOND:.1f} s in total")
    sharing = f"which shares {os.cpu_count()} CPUs with everything else"
    yield "measured", Text(f"at the worker, {sharing}", style="dim")


def _duplicates(evidence: Evidence) -> str:
    count = len(evidence.duplicates)
    if not count:
        return "0"
    explained = count - evidence.unexplained
    words = f"{count:,} arrived twice"
    if explained:
        words += f"; {explained:,} of them belonged to the dead shard and were due before the kill"
    return f"{words}; the worker processed {evidence.done_twice:,} of them twice"


def _takeover(evidence: Evidence) -> str:
    takeover_us, ownership_us = evidence.takeover_us, evidence.ownership_us
    if takeover_us is None or ownership_us is None:
        return "none observed"
    return (
        f"{ownership_us / SECOND:.2f} s from kill -9 until other shards had its partitions, "
        f"{takeover_us / SECOND:.2f} s until they fired its jobs"
    )


def _rate(evidence: Evidence) -> float:
    return evidence.expected_one_offs / max(evidence.registered.took_us / SECOND, 0.001)


def _histogram_lines(name: str, histogram: Histogram) -> Iterator[Text]:
    """One bar for each doubling of the lateness."""
    quantiles = ", ".join(
        f"p{share * 100:.4g} {histogram.quantile(share) / MILLISECOND:,.1f}"
        for share in (0.5, 0.99, 0.999)
    )
    yield Text("")
    yield Text.assemble(
        (f"lateness {name}", "bold"),
        f" · {histogram.count:,} runs · {quantiles}, max {histogram.max_us / MILLISECOND:,.1f} ms",
    )
    edges = [FIRST_EDGE_US]
    while edges[-1] < histogram.max_us:
        edges.append(edges[-1] * 2)
    below = [*histogram.counts_up_to(edges[:-1]), histogram.count]
    counts = [upper - lower for lower, upper in zip([0, *below], below, strict=False)]
    fullest = max(counts)
    is_drawing = False
    for edge_us, count in zip(edges, counts, strict=True):
        is_drawing = is_drawing or count > 0
        if is_drawing:
            bar = "█" * -(-BAR * count // fullest)
            yield Text.assemble(
                f"  ≤ {edge_us / MILLISECOND:>8,.0f} ms {count:>9,} ", (bar, "cyan")
            )
