"""Plots of lateness: over time, its distribution, and how figures grow."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

MOST_POINTS = 20_000
Point = tuple[float, float]


def plot_progress(path: Path, lateness_us: Mapping[str, Sequence[float]]) -> None:
    """How many were started, over time after a second at which all were due."""
    figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, values in lateness_us.items():
        started = [value / 1_000 for value in sorted(values) if math.isfinite(value)]
        counts = range(1, len(started) + 1)
        panel.plot([max(each, 0.1) for each in started], counts, label=name)
    panel.set(xscale="log", xlabel="ms after the second", ylabel="started")
    _finish(figure, path)


def plot_distribution(path: Path, lateness_us: Mapping[str, Sequence[float]]) -> None:
    """Which share was later than how much: straight down is good, far left is better."""
    figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, values in lateness_us.items():
        ordered = sorted(value for value in values if math.isfinite(value))
        last = max(len(ordered) - 100, 0)  # of the worst, each
        places = [*range(0, last, max(last // 2_000, 1)), *range(last, len(ordered))]
        panel.plot(
            [max(ordered[place] / 1_000, 0.01) for place in places],
            [1 - place / len(values) for place in places],
            label=name,
        )
    panel.set(xscale="log", yscale="log", xlabel="lateness, ms", ylabel="share that is later")
    _finish(figure, path)


def plot_over_time(path: Path, points: Mapping[str, Sequence[Point]]) -> None:
    """Lateness in ms over seconds, a dot each; of very many a fair share."""
    figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, pairs in points.items():
        kept = pairs[:: max(len(pairs) // MOST_POINTS, 1)]
        xs, ys = zip(*kept, strict=True)
        panel.scatter(xs, ys, s=2, label=name)
    panel.set(yscale="log", xlabel="s", ylabel="lateness, ms")
    _finish(figure, path)


def plot_growth(path: Path, lines: Mapping[str, Sequence[Point]], unit: str) -> None:
    """A figure over the number of jobs."""
    figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, pairs in lines.items():
        xs, ys = zip(*sorted(pairs), strict=True)
        panel.plot(xs, ys, marker="o", label=name)
    panel.set(xscale="log", ylim=(0, None), xlabel="jobs", ylabel=unit)
    _finish(figure, path)


def _finish(figure: Figure, path: Path) -> None:
    figure.axes[0].legend(fontsize="small")
    figure.axes[0].grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
