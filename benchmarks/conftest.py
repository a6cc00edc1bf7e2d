"""What every benchmark shares: the record of its figures, and the machine that they are from."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from report import Record

SETTINGS = ("WHEELSCHED_BENCH_", "WHEELSCHED_PEERS_")
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB",
    }


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    """Collects the figures of one module, then prints its table and writes its results."""
    name = request.module.__name__.removeprefix("bench_")
    record = Record(name, getattr(request.module, "OURS", "wheel"))
    yield record
    RESULTS.mkdir(exist_ok=True)
    command = getattr(request.module, "COMMAND", f"make bench ONLY={name}")
    asked = {key: value for key, value in os.environ.items() if key.startswith(SETTINGS)}
    figures = {
        "machine": machine(),
        "command": " ".join([*(f"{key}={value}" for key, value in asked.items()), command]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **record.as_dict(),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{_described(figures)}\n\n{record.table()}")
    record.plot(RESULTS / f"{name}.png")
    draw = getattr(request.module, "draw", None)
    if draw is not None:
        draw(record, RESULTS)
    assert not record.broken, record.broken


def _described(figures: dict[str, object]) -> str:
    facts = machine().items()
    return f"{figures['command']}\n" + ", ".join(f"{key} {value}" for key, value in facts)


def _processor() -> str:
    """Its name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
