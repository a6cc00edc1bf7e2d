"""`wheelsched shard` and `wheelsched api`, the production roles, on an external database."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.e2e.processes import children_of, eventually, is_over
from tests.stack import GENEROUS_S, PROGRAM, clean_environment, run

pytestmark = pytest.mark.proof  # roles in processes of their own


@contextmanager
def role(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=GENEROUS_S)


def url_of(api: subprocess.Popen[str]) -> str:
    assert api.stderr is not None
    for line in api.stderr:
        event = json.loads(line)
        if event["event"] == "api.listening":
            return str(event["url"])
    raise AssertionError("it did not start")


def living_shards(url: str) -> int:
    with urllib.request.urlopen(f"{url}/api/v1/shards", timeout=GENEROUS_S) as response:
        shards = json.load(response)["items"]
    return sum(bool(shard["partitions"]) for shard in shards if not shard["is_expired"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_shards_in_one_tree_share_the_jobs_and_end_together(
    database: str, number: signal.Signals
) -> None:
    on = ("--database-url", database)
    shards = ("shard", "--processes", "2", "--log-level", "error")
    with role("api", "--listen", "127.0.0.1:0", *on) as api, role(*shards, *on) as tree:
        url = url_of(api)
        eventually(lambda: living_shards(url) == 2)
        processes = {tree.pid, *children_of(tree.pid)}
        assert len(processes) == 3
        tree.send_signal(number)
        tree.communicate(timeout=GENEROUS_S)
        eventually(lambda: is_over(processes))
        assert tree.returncode == (0 if number is signal.SIGTERM else -signal.SIGKILL)
        api.send_signal(signal.SIGTERM)
        api.communicate(timeout=GENEROUS_S)
        assert api.returncode == 0


@pytest.mark.parametrize("name", ["shard", "api"])
def test_a_role_refuses_a_database_without_its_schema(empty_database: str, name: str) -> None:
    said = run(name, "--database-url", empty_database, code=1)
    assert "wheelsched db migrate" in said


def test_a_tree_of_shards_ends_when_its_shards_cannot_start(empty_database: str) -> None:
    said = run("shard", "--processes", "2", "--database-url", empty_database, code=1)
    assert "wheelsched db migrate" in said


def test_an_empty_database_is_migrated(empty_database: str) -> None:
    on = ("--database-url", empty_database)
    assert json.loads(run("db", "status", *on, "--json"))["applied"] == []
    assert "applied 0001_roles" in run("db", "migrate", *on)
    assert json.loads(run("db", "status", *on, "--json"))["pending"] == []


def test_the_settings_are_shown_and_changed(database: str) -> None:
    on = ("--database-url", database)
    defaults = {"history_days": 30, "dead_days": 90, "finished_days": 7}
    assert json.loads(run("db", "settings", *on, "--json")) == defaults
    run("db", "settings", "--history-days", "14", "--finished-days", "2", *on)
    changed = defaults | {"history_days": 14, "finished_days": 2}
    assert json.loads(run("db", "status", *on, "--json"))["settings"] == changed
    assert "history_days" in run("db", "status", *on)
    said = run("db", "settings", "--history-days", "0", "--dead-days", "9999", *on, code=2)
    assert "history_days is 0; expected 1 to 3,650 days" in said
    assert "dead_days is 9999" in said
    assert json.loads(run("db", "settings", *on, "--json")) == changed
