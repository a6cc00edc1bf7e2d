"""Whatever runs in the directory of a cluster ends with the test that started it."""

import subprocess
import sys
from pathlib import Path

from tests.ha import keeper
from tests.ha.keeper import inside
from tests.waiting import WAIT_LIMIT_S


def test_it_ends_what_runs_in_its_directory_and_nothing_else(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (place / "node").mkdir(parents=True)
    elsewhere.mkdir()
    ours = subprocess.Popen(["sleep", "1000"], cwd=place / "node")
    other = subprocess.Popen(["sleep", "1000"], cwd=elsewhere)
    guard = subprocess.Popen(
        [sys.executable, keeper.__file__, str(place)], stdin=subprocess.PIPE, cwd="/"
    )
    try:
        assert inside(place) == [ours.pid]
        guard.communicate(timeout=WAIT_LIMIT_S)  # closes its standard input, as our end would
        assert ours.wait(WAIT_LIMIT_S) == -9
        assert other.poll() is None
    finally:
        for process in (ours, other, guard):
            process.kill()
            process.wait()
