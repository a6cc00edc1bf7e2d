"""`job apply` as a process, against a running stack."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.stack import RunningStack

pytestmark = pytest.mark.proof  # a stack of processes, and one more for each command

TARGET = "http://127.0.0.1:9/hooks"

FILE = """
- name: applied-one
  schedule: "0 9 * * 1"
  timezone: Europe/London
  target: {url: "http://127.0.0.1:9/one"}
  timeout: 60s
  tags: {from: file}
- name: applied-two
  schedule: 2027-01-01T09:00:00Z
  target: {url: "http://127.0.0.1:9/two"}
  tags: {from: file}
"""


def test_a_file_is_applied_until_nothing_differs(stack: RunningStack, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE)
    apply = ("job", "apply", "-f", str(file), "--prune", "--tag", "from=file")

    def actions(*options: str) -> dict[str, str]:
        steps = stack.read(*apply, *options)["steps"]
        return {step["name"]: step["action"] for step in steps}

    assert actions("--dry-run") == {"applied-one": "create", "applied-two": "create"}
    stack.run("job", "get", "applied-one", code=3)
    assert actions() == {"applied-one": "create", "applied-two": "create"}
    assert actions() == {"applied-one": "keep", "applied-two": "keep"}

    file.write_text(FILE.replace("60s", "1m"))
    assert actions() == {"applied-one": "keep", "applied-two": "keep"}

    one = FILE.split("- name: applied-two", maxsplit=1)[0]
    file.write_text(one.replace("timeout: 60s\n", "payload: {a: 1}\n"))
    said = stack.run(*apply, "--dry-run")
    assert "timeout: 1m → 2m" in said
    assert "- applied-two" in said
    assert actions() == {"applied-one": "update", "applied-two": "delete"}
    assert stack.read("job", "get", "applied-one")["timeout"] == "2m"
    stack.run("job", "get", "applied-two", code=3)
    assert actions() == {"applied-one": "keep"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- name: a\n  schedule: '@daily'\n  targt: {}\n", "job 'a': /targt"),
        ("- [", "cannot parse"),
        (FILE + FILE, "duplicate name"),
        ("- name: a\n  schedule: '@daily'\n  target: {url: 'http://10.0.0.1/'}", "/target/url"),
    ],
)
def test_an_invalid_file_is_rejected(stack: RunningStack, text: str, says: str) -> None:
    assert says in stack.run("job", "apply", "-f", "-", "--dry-run", code=2, stdin=text)


def written(*jobs: tuple[str, str]) -> str:
    """A manifest of named jobs, each with an extra field."""
    return "".join(
        f"- name: {name}\n  schedule: '@daily'\n  target: {{url: 'http://127.0.0.1:9/'}}\n"
        f"  tags: {{from: steps}}\n  {own}\n"
        for name, own in jobs
    )


def names_from_steps(stack: RunningStack) -> set[str]:
    return {each["name"] for each in stack.read("job", "list", "--tag", "from=steps")}


def test_pruning_by_an_empty_file_needs_allow_empty(stack: RunningStack) -> None:
    apply = ("job", "apply", "-f", "-", "--prune", "--tag", "from=steps")
    stack.run("job", "apply", "-f", "-", stdin=written(("kept", "")))
    for empty in ("", "# only a comment\n", "[]", "---\n---\n"):
        for more in ((), ("--dry-run",)):
            assert "--allow-empty" in stack.run(*apply, *more, code=2, stdin=empty)
    assert names_from_steps(stack) == {"kept"}
    stack.run(*apply, "--allow-empty", stdin="")
    assert names_from_steps(stack) == set()


def test_a_file_is_validated_before_anything_is_written(stack: RunningStack) -> None:
    apply = ("job", "apply", "-f", "-")
    stack.run(*apply, stdin=written(("old", ""), ("other", "")))
    for own, says in (
        ("timeout: 0s", "timeout"),
        ("timezone: Nowhere/At_All", "/timezone"),
        ("idempotency_key: always", "/idempotency_key"),
    ):
        file = written(("new", ""), ("other", "timeout: 9s"), ("old", own))
        for more in (("--dry-run",), ()):
            said = stack.run(*apply, *more, code=2, stdin=file)
            assert says in said
            assert "nothing was changed" in said
            assert "stdin:15: job 'old': /" in said
    assert names_from_steps(stack) == {"old", "other"}
    assert stack.read("job", "get", "other")["timeout"] == "2m"
    stack.run(*apply, "--prune", "--tag", "from=steps", "--allow-empty", stdin="")


def test_a_one_off_of_the_past_may_still_be_edited(stack: RunningStack) -> None:
    due = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    file = (
        f"{{name: past, schedule: '{due}', target: {{url: '{TARGET}'}}, "
        "misfire: {grace: 1h}, retry: {max_attempts: 1}}"
    )
    stack.run("job", "create", "-f", "-", stdin=file)
    while stack.read("job", "get", "past")["state"] != "finished":
        pass
    edited = file.replace("name: past", "name: past, timeout: 9s").replace("1h", "1ms")
    assert "~ past" in stack.run("job", "apply", "-f", "-", stdin=edited)
    assert stack.read("job", "get", "past")["timeout"] == "9s"
