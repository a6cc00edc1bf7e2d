"""`run`: what became of due times, and what a person can still change about it.

Invariant: a run is named by its run id, a job by its id or its name.
"""

from typing import Annotated

import typer

from wheelsched.cli.commands import asks_api, group
from wheelsched.cli.jobs import JobArgument, find
from wheelsched.cli.output import Output, record, rows, sentence
from wheelsched.client import SyncClient
from wheelsched.wire.run import AttemptAnswer, RunAnswer

app = group("Look at runs, cancel them, try them again.")

RunArgument = Annotated[str, typer.Argument(help="The run's id.", metavar="RUN")]


@app.command("list")
@asks_api
def list_runs(
    client: SyncClient,
    job: JobArgument,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
) -> Output:
    """List the runs of a job, latest first."""
    found = client.list_runs(find(client, job).job_id)
    return run_rows([run for run, _ in zip(found, range(limit), strict=False)])


@app.command("get")
@asks_api
def get(client: SyncClient, run: RunArgument) -> Output:
    """Show a run with every attempt."""
    return _shown(client.get_run(run))


@app.command("cancel")
@asks_api
def cancel(client: SyncClient, run: RunArgument) -> Output:
    """Cancel a run."""
    answer = client.cancel_run(run)
    when = "before it was sent" if answer.in_time else "too late to keep it from being sent"
    return sentence(answer, f"cancelled, {when}")


@app.command("retry")
@asks_api
def retry(client: SyncClient, run: RunArgument) -> Output:
    """Try a run again that has ended badly."""
    return _shown(client.retry_run(run))


def run_rows(runs: list[RunAnswer]) -> Output:
    """Runs as a table."""
    return rows(
        runs,
        {
            "scheduled": lambda run: run.scheduled_at,
            "state": lambda run: run.state.value,
            "trigger": lambda run: run.trigger.value,
            "attempt": lambda run: run.attempt,
            "late ms": lambda run: run.lateness_ms,
            "http": lambda run: run.http_status,
            "why": lambda run: run.error or run.skip_reason,
            "id": lambda run: run.run_id,
        },
    )


def _shown(run: RunAnswer) -> Output:
    return record(
        run,
        {
            "id": run.run_id,
            "job": run.job_id,
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
        | {f"attempt {attempt.attempt}": _words_of(attempt) for attempt in run.attempts or ()},
    )


def _words_of(attempt: AttemptAnswer) -> str:
    if attempt.finished_at is None:
        return "not ended"
    status = "no answer" if attempt.http_status is None else str(attempt.http_status)
    return f"{status} {attempt.error or ''}".strip()
