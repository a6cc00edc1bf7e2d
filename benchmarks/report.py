"""Figures of one benchmark run: kept, compared as ratios, printed as a table, drawn."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt


class Figure(NamedTuple):
    workload: str
    rival: str
    size: int
    value: float
    unit: str


class Target(NamedTuple):
    """What a workload is held to: `ours` is better than `rival` by a factor, or below a bound."""

    text: str
    workload: str
    size: int
    rival: str | None
    bound: float


class Record:
    def __init__(self, name: str, ours: str) -> None:
        self.name = name
        self.ours = ours
        self.figures: list[Figure] = []
        self.targets: list[Target] = []
        self.failures: dict[tuple[str, str], str] = {}  # by workload and rival
        self.samples: dict[tuple[str, str], Sequence[float]] = {}  # what plots are made of

    @contextmanager
    def failing_as(self, workload: str, rival: str) -> Iterator[None]:
        """Keeps what went wrong for the table; the benchmark fails as it would have."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self.failures[workload, rival] = " ".join((str(error) or repr(error)).split())[-300:]
            raise

    def add(self, workload: str, rival: str, size: int, value: float, unit: str = "ns") -> None:
        self.figures.append(Figure(workload, rival, size, value, unit))

    def value(self, workload: str, rival: str, size: int) -> float | None:
        for figure in self.figures:
            if figure[:3] == (workload, rival, size):
                return figure.value
        return None

    def reached(self, target: Target) -> float | None:
        """The ratio to the rival or, without one, the value itself."""
        ours = self.value(target.workload, self.ours, target.size)
        if target.rival is None or ours is None:
            return ours
        theirs = self.value(target.workload, target.rival, target.size)
        return None if theirs is None else theirs / ours

    def as_dict(self) -> dict[str, Any]:
        return {
            "figures": [figure._asdict() for figure in self.figures if math.isfinite(figure.value)],
            "failures": [
                {"workload": workload, "rival": rival, "error": error}
                for (workload, rival), error in self.failures.items()
            ],
            "targets": [
                {**target._asdict(), "reached": _finite(self.reached(target))}
                for target in self.targets
            ],
        }

    @property
    def broken(self) -> list[str]:
        """What may not be at all, and is: runs that were lost or repeated."""
        never = [target for target in self.targets if target.rival is None and target.bound == 0]
        return [target.text for target in never if self.reached(target)]

    def table(self) -> str:
        parts = [self._figure_lines(), self._failure_lines(), self._target_lines()]
        return "\n\n".join("\n".join(lines) for lines in parts if lines)

    def _figure_lines(self) -> list[str]:
        rows: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
        named = [figure.rival for figure in self.figures]
        rivals = list(dict.fromkeys(named + [rival for _, rival in self.failures]))
        for figure in self.figures:
            rows[figure.workload, figure.size, figure.unit][figure.rival] = figure.value
        lines = [
            f"| {self.name} | size | unit | " + " | ".join(rivals) + " |",
            "|---|--:|---|" + "--:|" * len(rivals),
        ]
        for (workload, size, unit), values in rows.items():
            cells = [_shown(values[rival]) if rival in values else "" for rival in rivals]
            lines.append(f"| {workload} | {size:,} | {unit} | " + " | ".join(cells) + " |")
        return lines

    def _failure_lines(self) -> list[str]:
        return [
            f"FAILED: {rival}, {workload}: {error}"
            for (workload, rival), error in self.failures.items()
        ]

    def _target_lines(self) -> list[str]:
        if not self.targets:
            return []
        lines = ["| target | wanted | reached | |", "|---|--:|--:|---|"]
        for target in self.targets:
            reached = self.reached(target)
            if reached is None:
                lines.append(f"| {target.text} | | | not measured |")
                continue
            if target.rival is None:
                met = reached <= target.bound
                wanted, shown = f"≤ {target.bound:g}", f"{reached:,.1f}"
            else:
                met = reached >= target.bound
                wanted, shown = f"≥ {target.bound:g}×", f"{reached:,.1f}×"
            lines.append(f"| {target.text} | {wanted} | {shown} | {'met' if met else 'missed'} |")
        return lines

    def plot(self, path: Path) -> None:
        """One panel for each workload with several sizes: nanoseconds over size, a line a rival."""
        sizes: dict[str, set[int]] = defaultdict(set)
        for each in self.figures:
            sizes[each.workload].add(each.size)
        drawn = [
            each for each in self.figures if each.unit == "ns" and len(sizes[each.workload]) > 1
        ]
        workloads = list(dict.fromkeys(figure.workload for figure in drawn))
        if not workloads:
            return
        columns = 3
        rows = -(-len(workloads) // columns)
        figure, panels = plt.subplots(
            rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False, layout="constrained"
        )
        for panel, workload in zip(panels.flat, workloads, strict=False):
            lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
            for each in drawn:
                if each.workload == workload:
                    lines[each.rival].append((each.size, each.value))
            for rival, points in lines.items():
                xs, ys = zip(*sorted(points), strict=True)
                panel.plot(xs, ys, marker="o", label=rival)
            panel.set(title=workload, xscale="log", yscale="log", xlabel="timers", ylabel="ns")
            panel.legend(fontsize="x-small")
        for panel in panels.flat[len(workloads) :]:
            panel.axis("off")
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _finite(value: float | None) -> float | None:
    """What JSON has a word for."""
    return value if value is not None and math.isfinite(value) else None


def _shown(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"
