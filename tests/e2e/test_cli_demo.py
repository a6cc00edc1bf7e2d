"""A small `wheelsched demo`: it kills a shard and loses no run."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.stack import GENEROUS_S, PROGRAM, clean_environment, run

pytestmark = pytest.mark.proof  # the whole demo

SMALL = ("--jobs", "500", "--single", "20", "--recurring", "10")


def test_nothing_is_lost_although_a_shard_is_killed() -> None:
    shown = json.loads(run_quietly("demo", *SMALL, "--json"))
    assert shown["lost"] == 0
    assert shown["done_twice"] == 0
    assert shown["early"] == 0
    assert shown["one_offs"] == {"expected": 500, "arrived": 500}
    assert shown["recurring"]["arrived"] == shown["recurring"]["expected"] > 0
    assert shown["takeover_ms"] > 0
    assert shown["took_s"] > shown["takeover_ms"] / 1_000


def test_the_hot_second_is_drawn() -> None:
    said = run("bench", "hot-second", "--jobs", "300")
    assert "lateness" in said
    assert "█" in said


def test_it_leaves_nothing_over(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    for parent in tmp_path.parents:
        if parent.owner() == tmp_path.owner() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o011)
    run("bench", "steady", "--rate", "5", "--seconds", "1", environment={"TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def run_quietly(*arguments: str) -> str:
    """What a command prints on stdout."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_is_measured_against_a_heap() -> None:
    costs = json.loads(run_quietly("bench", "wheel", "--timers", "2000", "--json"))
    assert [cost["what"] for cost in costs] == ["insert", "fire in steps of 1 ms"]
