"""Every command as a process against a running stack: its output and its exit code."""

import asyncio
import json
import re

import asyncpg
import pytest
from tests.stack import RunningStack, run

pytestmark = pytest.mark.proof  # a stack of processes, and one more for each command

TARGET = ("--target", "http://127.0.0.1:9/hooks")
SCHEDULE = "wheelsched.schedule('bad', '61 * * * *', 'http://127.0.0.1:9/')"
WEEKLY = ("--schedule", "0 9 * * 1", *TARGET)


@pytest.fixture
def job(stack: RunningStack, request: pytest.FixtureRequest) -> str:
    """The name of a job for this test only."""
    name = str(request.node.name)
    stack.run("job", "create", name, *WEEKLY)
    return name


def sql(stack: RunningStack, statement: str, role: str = "none", refusal: str = "") -> None:
    """Runs a statement as a role, or checks that it is refused."""

    async def do() -> None:
        connection = await asyncpg.connect(stack.database_url, server_settings={"role": role})
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    if refusal:
        with pytest.raises(asyncpg.PostgresError, match=refusal):
            asyncio.run(do())
    else:
        asyncio.run(do())


def test_a_job_is_created_shown_changed_and_deleted(stack: RunningStack) -> None:
    made = stack.read(
        *("job", "create", "report", *WEEKLY, "--timezone", "America/New_York"),
        *("--payload", '{"report": "weekly"}', "--tag", "team=a", "--header", "x-team: a"),
        *("--max-attempts", "2", "--overlap", "queue", "--batch", "5"),
    )
    assert made["payload"] == {"report": "weekly"}
    assert made["target"]["headers"] == {"x-team": "a"}
    assert stack.read("job", "get", "report")["job_id"] == made["job_id"]
    assert stack.read("job", "get", made["job_id"])["name"] == "report"
    changed = stack.read("job", "update", "report", "--timeout", "30s", "--version", "1")
    assert changed["timeout"] == "30s"
    assert changed["retry"]["max_attempts"] == 2
    assert [each["name"] for each in stack.read("job", "list", "--tag", "team=a")] == ["report"]
    changed = stack.read(
        *("job", "update", "report", "--payload", '{"of": null}'),
        *("--tag", "team=", "--tag", "tier=1", "--header", "x-team:"),
    )
    assert changed["payload"] == {"of": None}
    assert (changed["tags"], changed["target"]["headers"]) == ({"tier": "1"}, {})
    assert "America/New_York" in stack.run("job", "next", "report", "--count", "2")
    stack.run("job", "delete", "report")
    assert "job 'report' not found" in stack.run("job", "get", "report", code=3)


def test_a_job_is_paused_and_resumed(stack: RunningStack, job: str) -> None:
    assert stack.read("job", "pause", job)["state"] == "paused"
    names = [each["name"] for each in stack.read("job", "list", "--state", "paused")]
    assert names == [job]
    assert stack.read("job", "resume", job, "--from", "paused_at")["state"] == "active"


def test_a_run_is_triggered_and_its_history_is_shown(stack: RunningStack, job: str) -> None:
    stack.run("job", "update", job, "--max-attempts", "1")
    (run_id,) = stack.read("job", "trigger", job)["run_ids"]
    while stack.read("run", "get", run_id)["state"] != "dead":
        pass
    shown = stack.run("run", "get", run_id)
    assert "Connection refused" in shown
    assert [each["run_id"] for each in stack.read("run", "list", job)] == [run_id]
    assert [each["run_id"] for each in stack.read("dead", "list", "--job", job)] == [run_id]
    assert stack.read("dead", "redrive", "--job", job, "--rate", "10")["count"] == 1


def test_runs_are_listed_across_jobs_by_state_and_time(stack: RunningStack, job: str) -> None:
    stack.run("job", "update", job, "--max-attempts", "1", "--backoff", "fixed")
    (run_id,) = stack.read("job", "trigger", job, "--payload", '{"of": 1}')["run_ids"]
    while stack.read("run", "get", run_id)["state"] != "dead":
        pass
    listed = stack.read("run", "list", "--state", "dead", "--since", "1h", "--until", "in 1m")
    assert (run_id, job) in [(each["run_id"], each["job_name"]) for each in listed]
    assert stack.read("run", "list", job, "--state", "succeeded", "--since", "1h ago") == []
    assert job in stack.run("run", "list", "--state", "dead", "--until", "now", "--local")
    assert job in stack.run("dead", "list", "--job", job)
    assert "dead list --since 1d" in stack.run("doctor")
    assert "exceeds 7 days" in stack.run("run", "list", "--since", "8d", code=2)


def test_a_list_that_is_cut_says_so(stack: RunningStack) -> None:
    for number in range(3):
        stack.run("job", "create", f"cut-{number}", *WEEKLY, "--tag", "cut:yes")
    listing = ("job", "list", "--tag", "cut=yes")
    assert "showing the first 2;" in stack.run(*listing, "--limit", "2")
    assert "showing" not in stack.run(*listing, "--limit", "3")
    assert len(stack.read(*listing, "--limit", "1", "--all")) == 3
    assert "requires a terminal" in stack.run(*listing, "--watch", code=2)


def test_a_job_is_explained(stack: RunningStack, job: str) -> None:
    due = stack.read("job", "next", job, "--count", "1")["items"][0]["utc"]
    explained = stack.read("job", "explain", job, "--at", due)
    assert (explained["verdict"], explained["at"]) == ("not_yet", due)
    assert "not_yet" in stack.run("job", "explain", job)  # it was never due: its next due time
    assert "invalid time 'noon'" in stack.run("job", "explain", job, "--at", "noon", code=2)


def test_applying_an_export_changes_nothing(stack: RunningStack, job: str) -> None:
    stack.run("job", "update", job, "--payload", '{"a": "010"}', "--backoff-max", "9m")
    for options in ((), ("--json",)):
        exported = stack.run("job", "export", job, *options)
        (step,) = stack.read("job", "apply", "-f", "-", stdin=exported)["steps"]
        assert (step["name"], step["action"]) == (job, "keep")


def test_the_version_is_shown() -> None:
    assert run("--version").startswith("wheelsched ")


def test_a_backfill_is_counted_first(stack: RunningStack, job: str) -> None:
    counted = stack.read(
        *("job", "backfill", job, "--preview"),
        *("--since", "2026-01-05T00:00:00Z", "--until", "2026-01-20T00:00:00Z"),
    )
    assert (counted["count"], counted["preview"]) == (3, True)
    assert stack.read("run", "list", job) == []


def test_a_backfill_runs_what_was_due(stack: RunningStack, job: str) -> None:
    said = stack.run(
        *("job", "backfill", job),
        *("--since", "2026-01-05T00:00:00Z", "--until", "2026-01-20T00:00:00Z"),
    )
    assert "3 runs added" in said
    runs = stack.read("run", "list", job)
    assert {each["trigger"] for each in runs} == {"backfill"}
    assert sorted(each["scheduled_at"] for each in runs) == [
        f"2026-01-{day}T09:00:00Z" for day in ("05", "12", "19")
    ]


def test_a_run_is_cancelled_and_retried(stack: RunningStack) -> None:
    """It waits for an hour between its attempts, and so is live whenever it is asked for, if
    perhaps armed already."""
    file = (
        f"{{name: patient, schedule: '@yearly', target: {{url: '{TARGET[1]}'}}, "
        "retry: {max_attempts: 20, initial: 1h, max: 1h}}"
    )
    stack.run("job", "create", "-f", "-", stdin=file)
    (run_id,) = stack.read("job", "trigger", "patient")["run_ids"]
    assert "cancelled, " in stack.run("run", "cancel", run_id)
    assert stack.read("run", "get", run_id)["state"] == "cancelled"
    assert stack.read("run", "retry", run_id)["state"] in {"retrying", "armed", "running"}
    assert "cannot be retried" in stack.run("run", "retry", run_id, code=4)
    assert stack.read("run", "cancel", run_id)["run_id"] == run_id


def test_a_dead_run_is_retried(stack: RunningStack, job: str) -> None:
    stack.run("job", "update", job, "--max-attempts", "1")
    (run_id,) = stack.read("job", "trigger", job)["run_ids"]
    while stack.read("run", "get", run_id)["state"] != "dead":
        pass
    assert run_id in stack.run("run", "retry", run_id)
    while (shown := stack.read("run", "get", run_id))["state"] != "dead":
        pass
    assert shown["attempt"] == 2
    assert "has already ended" in stack.run("run", "cancel", run_id, code=4)


def test_the_shards_are_shown(stack: RunningStack) -> None:
    (shard,) = stack.read("shards")["items"]
    assert len(shard["partitions"]) == 256
    assert (shard["armed"], shard["in_flight"]) != (None, None)
    assert shard["unready_partitions"] == 0
    assert "held" in stack.run("shards")


def test_the_schema_is_shown_and_is_current(stack: RunningStack) -> None:
    database = ("--database-url", stack.database_url)
    assert stack.read("db", "status", *database)["pending"] == []
    assert "nothing to apply" in stack.run("db", "migrate", *database)


def test_the_doctor_finds_nothing(stack: RunningStack) -> None:
    findings = stack.read("doctor", "--database-url", stack.database_url)
    assert [each["subject"] for each in findings] == [
        *("API", "breakers", "dead runs", "schema", "database", "clock", "leases", "links"),
        *("arming", "replication", "jobs", "hints", "disk"),
    ]
    assert str(stack.home) in findings[-1]["detail"]
    assert {each["verdict"] for each in findings} <= {"ok", "warning"}


def test_a_role_is_granted_and_what_it_schedules_wrongly_is_shown(stack: RunningStack) -> None:
    database = ("--database-url", stack.database_url)
    sql(stack, "CREATE ROLE shop")
    sql(stack, f"SELECT {SCHEDULE}", role="shop", refusal="speaks for no tenant")
    said = stack.run("tenant", "grant", "local", "--database-role", "shop", *database)
    assert "shop may now schedule jobs for local" in said
    assert [each["database_role"] for each in stack.read("tenant", "grants", *database)] == ["shop"]
    sql(stack, f"SELECT {SCHEDULE}", role="shop")
    while stack.read("job", "get", "bad")["state"] == "unplanned":
        pass
    shown = stack.run("job", "get", "bad")
    assert "refused" in shown
    assert "/schedule: " in shown
    names = [each["name"] for each in stack.read("job", "list", "--state", "refused")]
    assert names == ["bad"]
    assert "1 jobs scheduled in SQL are refused" in stack.run("doctor", *database)
    assert "61" in stack.run("job", "pause", "bad", code=4)
    file = f"{{name: bad, schedule: '@daily', target: {{url: '{TARGET[1]}'}}}}"
    said = stack.run("job", "apply", "-f", "-", stdin=file)
    assert said.startswith("- bad\n    state: refused → nothing\n+ bad\n1 to create, ")
    assert stack.read("job", "get", "bad")["state"] == "active"
    stack.run("job", "delete", "bad")
    stack.run("tenant", "revoke", "local", "--database-role", "shop", *database)
    stack.run("tenant", "revoke", "local", "--database-role", "shop", *database, code=3)
    stack.run("tenant", "grant", "local", "--database-role", "nobody", *database, code=3)
    stack.run("tenant", "grant", "nobody", "--database-role", "shop", *database, code=3)


def test_the_doctor_says_what_to_do() -> None:
    said = run("doctor", "--url", "http://127.0.0.1:9", code=1)
    assert "wheelsched up" in said


NOWHERE = ("--database-url", "postgresql://nobody@127.0.0.1:9/none")


def test_doctor_reports_an_unreachable_database_once() -> None:
    said = run("doctor", "--url", "http://127.0.0.1:9", *NOWHERE, "--json", code=1)
    (finding,) = [each for each in json.loads(said) if each["subject"] == "database"]
    assert finding["detail"].startswith("unreachable: ")
    assert "write" not in finding["detail"]


GRANT = ("local", "--database-role", "shop")


@pytest.mark.parametrize(
    "command",
    [
        ("db", "status"),
        ("db", "migrate"),
        ("tenant", "list"),
        ("tenant", "grants"),
        ("tenant", "grant", *GRANT),
        ("tenant", "revoke", *GRANT),
    ],
)
def test_an_error_is_printed_once(command: tuple[str, ...]) -> None:
    said = run(*command, *NOWHERE, code=6)
    assert said.startswith("error: the database is unreachable")
    assert "store.failed" not in said


@pytest.mark.parametrize("command", ["create", "update"])
@pytest.mark.parametrize(
    ("option", "most"),
    [
        ("--weight", "1000"),
        ("--job-quota", "2147483647"),
        ("--requests-per-second", "2147483647"),
    ],
)
def test_a_tenant_has_the_bounds_of_the_api_at_the_database_too(
    command: str, option: str, most: str
) -> None:
    said = run("tenant", command, "a", option, f"{most}0", *NOWHERE, code=2)
    assert option in said
    assert most in said


def test_a_schedule_is_explained_without_an_api() -> None:
    said = run("cron", "explain", "30 2 * * *", "--timezone", "America/New_York")
    assert said.startswith("At 02:30")
    assert "clocks go forward" in said
    shown = json.loads(run("cron", "explain", "every 90s", "--count", "3", "--json"))
    assert len(shown["next_times"]) == 3


@pytest.mark.parametrize(
    ("code", "says", "arguments"),
    [
        (2, "61", ("job", "create", "bad", "--schedule", "61 9 * * 1", *TARGET)),
        (2, "/target/url", ("job", "create", "bad", *WEEKLY[:2], "--target", "ftp://a.example")),
        (2, "missing name", ("job", "create", *WEEKLY)),
        (2, "nothing to change", ("job", "update", "any")),
        (2, "expected JSON, e.g.", ("job", "create", "bad", *WEEKLY, "--payload", "{")),
        (2, "/a: NaN", ("job", "create", "bad", *WEEKLY, "--payload", '{"a": NaN}')),
        (2, "expected JSON, e.g.", ("job", "create", "bad", "--schedule", "{bad", *TARGET)),
        (2, "invalid tag 'team'", ("job", "list", "--tag", "team")),
        (2, "invalid time 'yesterday'", ("dead", "list", "--since", "yesterday")),
        (2, "No such command", ("jobs",)),
        (3, "job 'nobody' not found", ("job", "pause", "nobody")),
        (3, "run not found", ("run", "get", "0" * 32 + "-1")),
        (5, "--token", ("job", "list", "--token", "wst_wrong")),
        (6, "wheelsched up", ("job", "list", "--url", "http://127.0.0.1:9")),
        (2, "invalid API URL", ("job", "list", "--url", "localhost:8420")),
        (6, "--database-url", ("db", "status", "--database-url", "postgresql://127.0.0.1:9/x")),
    ],
)
def test_errors_have_an_exit_code_and_a_message(
    stack: RunningStack, code: int, says: str, arguments: tuple[str, ...]
) -> None:
    assert says in stack.run(*arguments, code=code)


def test_a_name_that_is_taken_is_a_conflict(stack: RunningStack, job: str) -> None:
    assert "with this name" in stack.run("job", "create", job, *WEEKLY, code=4)
    assert "version" in stack.run("job", "update", job, "--timeout", "9s", "--version", "7", code=4)


def test_no_text_of_a_user_is_read_as_markup(stack: RunningStack) -> None:
    name = "[red]<script>alert(1)</script>"
    stack.run("job", "create", name, *WEEKLY)
    assert name in stack.run("job", "list")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_terminal(stack: RunningStack, job: str, width: int) -> None:
    lines = [line.rstrip() for line in stack.run_on_terminal("job", "list", width=width)]
    assert len(re.split(" {2,}", lines[0])) == 7
    assert max(map(len, lines)) <= width
    assert len(lines) == 1 + len(stack.read("job", "list"))
    piped = stack.run("job", "list").splitlines()
    assert stack.read("job", "get", job)["job_id"] in "".join(piped)


def test_missing_fields_of_a_job_are_not_shown_as_none(stack: RunningStack, job: str) -> None:
    assert "None" not in stack.run("job", "get", job)
    stack.run("job", "update", job, "--overlap", "allow")
    assert "None" not in stack.run("job", "get", job)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_it(shell: str) -> None:
    known = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "wheelsched" in run("--show-completion", shell, environment=known)


def test_the_help_names_every_command() -> None:
    said = run("--help")
    for command in ("up", "demo", "shard", "api", "db", "job", "run", "dead", "shards", "tenant"):
        assert f"  {command} " in said
