"""`run`: shows, cancels and retries runs.

Invariant: a run is given by its run id, a job by its id or its name.
"""

from collections.abc import Iterator
from typing import Annotated

import typer
from msgspec.structs import replace

from wheelsched.cli.commands.jobs import find
from wheelsched.cli.option_parsers import read_optional_instant
from wheelsched.cli.output import Output, first, record, rows, sentence
from wheelsched.cli.shared import AllOption, LimitOption, group, with_client, with_watchable_client
from wheelsched.client import SyncClient
from wheelsched.core.model import RunState
from wheelsched.wire.run import AttemptAnswer, RunAnswer

app = group("Show, cancel and retry runs.")

RunArgument = Annotated[str, typer.Argument(help="Run id.", metavar="RUN")]


@app.command("list")
@with_watchable_client
def list_runs(
    client: SyncClient,
    job: Annotated[str | None, typer.Argument(help="Job id or name; by default all jobs.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Start of the range: ISO 8601, or e.g. 2h; default an hour before --until."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="End of the range (exclusive): ISO 8601, or e.g. 'in 5m'; default now."),
    ] = None,
    limit: LimitOption = 100,
    show_all: AllOption = False,
) -> Output:
    """List runs, latest first: those of the last hour, or all runs of a job."""
    found = None if job is None else find(client, job)
    start, end = read_optional_instant(since), read_optional_instant(until)
    runs: Iterator[RunAnswer]
    if found is not None and state is None and start is None and end is None:
        runs = (replace(run, job_name=found.name) for run in client.list_runs(found.job_id))
    else:
        job_id = None if found is None else found.job_id
        runs = client.list_latest_runs(state=state, job_id=job_id, since=start, until=end)
    return run_rows(*first(runs, None if show_all else limit))


@app.command("get")
@with_client
def get(client: SyncClient, run: RunArgument) -> Output:
    """Show a run with all its attempts."""
    return _shown(client.get_run(run))


@app.command("cancel")
@with_client
def cancel(client: SyncClient, run: RunArgument) -> Output:
    """Cancel a run."""
    answer = client.cancel_run(run)
    when = "before it was sent" if answer.in_time else "after it was sent"
    return sentence(answer, f"cancelled, {when}")


@app.command("retry")
@with_client
def retry(client: SyncClient, run: RunArgument) -> Output:
    """Retry a dead or cancelled run."""
    return _shown(client.retry_run(run))


def run_rows(runs: list[RunAnswer], notes: tuple[str, ...] = ()) -> Output:
    """A table of runs."""
    return rows(
        runs,
        {
            "job": lambda run: run.job_name or run.job_id,
            "scheduled": lambda run: run.scheduled_at,
            "state": lambda run: run.state.value,
            "trigger": lambda run: run.trigger.value,
            "attempt": lambda run: run.attempt,
            "late ms": lambda run: run.lateness_ms,
            "http": lambda run: run.http_status,
            "why": lambda run: run.error or run.skip_reason,
            "id": lambda run: run.run_id,
        },
        notes,
    )


def _shown(run: RunAnswer) -> Output:
    return record(
        run,
        {
            "id": run.run_id,
            "job": run.job_id if run.job_name is None else f"{run.job_name} ({run.job_id})",
            "scheduled": run.scheduled_at,
            "due": run.due_at,
            "state": run.state.value,
            "trigger": run.trigger.value,
            "armed": run.armed_at,
            "started": run.started_at,
            "finished": run.finished_at,
            "late ms": run.lateness_ms,
            "skipped": run.skip_reason,
            "missed": run.missed_count,
            "waiting for": run.waiting_for,
            "shard": run.shard,
            "token": run.token,
        }
        | {f"attempt {attempt.attempt}": words_of(attempt, run) for attempt in run.attempts or ()},
    )


def words_of(attempt: AttemptAnswer, run: RunAnswer) -> str:
    """How an attempt ended. A run completed by a report has no HTTP status."""
    if attempt.finished_at is None:
        return "unfinished"
    if attempt.http_status is not None:
        return f"{attempt.http_status} {attempt.error or ''}".strip()
    if run.state is RunState.SUCCEEDED and attempt.attempt == run.attempt:
        return "completed by the worker"
    return attempt.error or "no response"
