"""`wheelsched up`: it starts, serves, and leaves nothing over when it ends."""

import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.processes import children_of, descendants_of, eventually, is_over, parents
from tests.postgres import reachable_directory
from tests.stack import GENEROUS_S, RunningStack, run, running_stack

pytestmark = pytest.mark.proof  # a stack of processes for each


@pytest.fixture
def home() -> Iterator[Path]:
    directory = reachable_directory()
    yield directory / "home"
    shutil.rmtree(directory)


def tree(stack: RunningStack) -> set[int]:
    """All processes of a stack: the children, and the database server, which is not a child."""
    server = int((stack.home / "data/postmaster.pid").read_text().splitlines()[0])
    supervisor = parents()[server]
    return {stack.process.pid, server, supervisor} | descendants_of({stack.process.pid, server})


def ask(stack: RunningStack, path: str, body: Any = None) -> Any:
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(
        stack.url + path, data, {"Content-Type": "application/json"} if data else {}
    )
    with urllib.request.urlopen(request, timeout=GENEROUS_S) as response:
        return msgspec.json.decode(response.read())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything(home: Path, number: signal.Signals) -> None:
    with running_stack(home=home) as stack:
        processes = tree(stack)
        assert len(processes) >= 5  # itself, the API, a shard, the database and who watches it
        stack.process.send_signal(number)
        stack.process.communicate(timeout=GENEROUS_S)
        assert stack.process.returncode == 0
        assert is_over(processes)


def test_the_second_signal_ends_it_at_once(home: Path) -> None:
    with running_stack(home=home) as stack:
        processes = tree(stack)
        stack.process.send_signal(signal.SIGSTOP)  # so that both are there when it looks
        stack.process.send_signal(signal.SIGINT)
        stack.process.send_signal(signal.SIGTERM)
        stack.process.send_signal(signal.SIGCONT)
        stack.process.communicate(timeout=GENEROUS_S)
        assert stack.process.returncode in {128 + signal.SIGINT, 128 + signal.SIGTERM}
        eventually(lambda: is_over(processes))


def test_no_process_survives_a_kill(home: Path) -> None:
    with running_stack(home=home) as stack:
        processes = tree(stack)
        stack.process.kill()
        eventually(lambda: is_over(processes))


@pytest.mark.smoke
def test_jobs_survive_a_restart(home: Path) -> None:
    job = {
        "name": "kept",
        "schedule": "0 9 * * 1",
        "target": {"url": "http://127.0.0.1:9/hooks"},
    }
    with running_stack(home=home) as stack:
        job_id = ask(stack, "/api/v1/jobs", job)["job_id"]
    with running_stack(home=home) as stack:
        assert ask(stack, f"/api/v1/jobs/{job_id}")["name"] == "kept"


def test_the_secret_is_printed_when_it_is_made_and_by_a_command(home: Path) -> None:
    with running_stack(home=home) as stack:
        secret = stack.secret
        assert secret
    command = ("tenant", "secret", "--data-dir", str(home))
    assert "unreachable" in run(*command, code=6)
    with running_stack(home=home) as stack:
        assert stack.secret == ""
        assert stack.run(*command).split() == [secret]
        database = ("--database-url", stack.database_url)
        shown = stack.read("tenant", "secret", "local", *database)
        assert shown == {"tenant": "local", "secrets": [secret]}
        rotated = stack.read("tenant", "rotate-secret", "local", *database)["secret"]
        assert stack.run(*command).split() == [rotated, secret]
        assert "tenant 'nobody' not found" in stack.run(*command, "nobody", code=3)


def test_dead_children_are_restarted(home: Path) -> None:
    with running_stack("--shards", "2", home=home) as stack:
        before = ask(stack, "/api/v1/shards")["items"]
        children = children_of(stack.process.pid)
        assert len(children) == 3
        for pid in children:
            os.kill(pid, signal.SIGKILL)

        def is_back() -> bool:
            try:
                items = ask(stack, "/api/v1/shards")["items"]
            except (urllib.error.URLError, ConnectionError):
                return False
            alive = {shard["shard_id"] for shard in items if not shard["is_expired"]}
            return len(alive - {shard["shard_id"] for shard in before}) == 2

        eventually(is_back)


def test_a_taken_address_is_reported_at_once(home: Path) -> None:
    with running_stack(home=home) as stack:
        address = stack.url.removeprefix("http://")
        other = reachable_directory()
        said = run("up", "--listen", address, "--data-dir", str(other / "home"), code=1)
        shutil.rmtree(other)
        assert f"cannot listen on {address}" in said


def test_with_auth_required_local_programs_need_a_token(home: Path) -> None:
    with running_stack("--auth", "required", home=home) as stack:
        assert stack.secret == ""
        assert "missing `Authorization: Bearer <token>` header" in stack.run("job", "list", code=5)
        database = ("--database-url", stack.database_url)
        stack.run("tenant", "create", "acme", *database)
        made = stack.read(
            "token", "create", "ops", "--tenant", "acme", "--scope", "read", *database
        )
        assert stack.read("job", "list", "--token", made["token"]) == []
        create = ("job", "create", "a", "--schedule", "@daily", "--target", "https://example.org/")
        assert "scope 'write'" in stack.run(*create, "--token", made["token"], code=5)
        assert "unknown" in stack.run("shards", "--token", "wst_wrong", code=5)
        stack.run("token", "revoke", made["token_id"], *database)
        (token,) = stack.read("token", "list", "--tenant", "acme", *database)
        assert token["revoked_at"] is not None
