"""What every benchmark shares: the record of its figures, and the machine that they are from."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from report import Record

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    """Collects the figures of one module, then prints its table and writes its results."""
    name = request.module.__name__.removeprefix("bench_")
    record = Record(name, getattr(request.module, "OURS", "wheel"))
    yield record
    RESULTS.mkdir(exist_ok=True)
    figures = {"machine": machine(), "command": f"make bench ONLY={name}", **record.as_dict()}
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + record.table())
    record.plot(RESULTS / f"{name}.png")
