"""`job`: creates, shows and changes jobs.

Invariant: every command accepts a job by its id or its name.
"""

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import typer
from msgspec import UNSET

from wheelsched.cli.commands.apply import apply
from wheelsched.cli.export import manifest_of, to_yaml
from wheelsched.cli.job_options import overlay, with_job_options
from wheelsched.cli.manifest import read_one
from wheelsched.cli.option_parsers import now, read_instant, read_payload, read_tags
from wheelsched.cli.output import Output, due_columns, first, record, rows, sentence
from wheelsched.cli.shared import AllOption, LimitOption, group, with_client, with_watchable_client
from wheelsched.client import SyncClient
from wheelsched.core.model import DRAFT_STATES, JobState
from wheelsched.core.policies.policy import Backoff
from wheelsched.errors import NotFound
from wheelsched.values.counting import counted
from wheelsched.wire.job import JobAnswer, OverlapDocument, RetryDocument, TargetDocument
from wheelsched.wire.jobs import ResumeFrom
from wheelsched.wire.schedule import ExplainAnswer

MAX_RUNS_NAMED: Final = 3

app = group("Create, show and change jobs.")

JobArgument = Annotated[str, typer.Argument(help="Job id or name.", metavar="JOB")]
TagOption = Annotated[
    list[str] | None, typer.Option(help="Only jobs with this tag, NAME=VALUE; repeatable.")
]


@app.command("create")
@with_client
@with_job_options
def create(
    client: SyncClient,
    fields: dict[str, Any],
    name: Annotated[str | None, typer.Argument(help="Job name, unique within the tenant.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Job document to start from; - is stdin.")
    ] = None,
) -> Output:
    """Register a job."""
    document = overlay({} if file is None else read_one(file), fields)
    if name is not None:
        document["name"] = name
    missing = [field for field in ("name", "schedule", "target") if field not in document]
    if missing:
        raise typer.BadParameter(
            f"missing {', '.join(missing)}, e.g.: wheelsched job create weekly-report "
            "--schedule '0 9 * * 1' --target https://example.org/hooks/report"
        )
    return _shown(client.create_job(document))  # type: ignore[arg-type]  # the API validates it


app.command("apply")(apply)


@app.command("list")
@with_watchable_client
def list_jobs(
    client: SyncClient,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only the job with this name.")] = None,
    tag: TagOption = None,
    limit: LimitOption = 100,
    show_all: AllOption = False,
) -> Output:
    """List jobs by name."""
    found = client.list_jobs(state=state, name=name, tags=read_tags(tag))
    jobs, notes = first(found, None if show_all else limit)
    return rows(
        jobs,
        {
            "name": lambda job: job.name,
            "state": lambda job: job.state.value,
            "schedule": lambda job: job.schedule,
            "timezone": lambda job: job.timezone,
            "next run": lambda job: job.next_run_at,
            "target": lambda job: _shown_target(job.target),
            "id": lambda job: job.job_id,
        },
        notes,
    )


@app.command("get")
@with_client
def get(client: SyncClient, job: JobArgument) -> Output:
    """Show a job with all its defaults."""
    return _shown(find(client, job))


@app.command("update")
@with_client
@with_job_options
def update(
    client: SyncClient,
    fields: dict[str, Any],
    job: JobArgument,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    version: Annotated[
        int | None, typer.Option(help="Only if the job still has this version.")
    ] = None,
) -> Output:
    """Change the given fields of a job."""
    changes = fields if name is None else fields | {"name": name}
    if not changes:
        raise typer.BadParameter("nothing to change; pass at least one field, e.g. --timeout 30s")
    found = find(client, job)
    return _shown(client.update_job(found.job_id, changes, version=version))  # type: ignore[arg-type]


@app.command("delete")
@with_client
def delete(client: SyncClient, job: JobArgument) -> Output:
    """Delete a job. Its history is kept for its retention period."""
    found = find(client, job)
    return _changed(client.delete_job(found.job_id) or found, "deleted")


@app.command("pause")
@with_client
def pause(client: SyncClient, job: JobArgument) -> Output:
    """Pause the schedule of a job. Runs in flight continue."""
    return _changed(client.pause_job(find(client, job).job_id), "paused")


@app.command("resume")
@with_client
def resume(
    client: SyncClient,
    job: JobArgument,
    start: Annotated[
        ResumeFrom,
        typer.Option(
            "--from", help="Where to continue; the misfire policy decides about missed runs."
        ),
    ] = ResumeFrom.NOW,
) -> Output:
    """Resume the schedule of a job."""
    return _changed(client.resume_job(find(client, job).job_id, start), "resumed")


@app.command("trigger")
@with_client
def trigger(
    client: SyncClient,
    job: JobArgument,
    payload: Annotated[
        str | None, typer.Option(help="JSON or @FILE, sent instead of the job's payload.")
    ] = None,
) -> Output:
    """Run a job now, in addition to its schedule."""
    own = UNSET if payload is None else read_payload(payload)
    requested = client.trigger_job(find(client, job).job_id, own)
    return sentence(requested, f"added run {requested.run_ids[0]}")


@app.command("backfill")
@with_client
def backfill(
    client: SyncClient,
    job: JobArgument,
    since: Annotated[str, typer.Option(help="Start of the range: ISO 8601, or e.g. 2h ago.")],
    until: Annotated[str, typer.Option(help="End of the range (exclusive).")] = "now",
    preview: Annotated[bool, typer.Option("--preview", help="Only count the runs.")] = False,
) -> Output:
    """Run the due times of a past range."""
    start, end = read_instant(since), read_instant(until)
    requested = client.backfill_job(find(client, job).job_id, start, end, preview=preview)
    verb = "would be added" if preview else "added"
    return sentence(requested, f"{requested.count:,} runs {verb}")


@app.command("next")
@with_client
def next_times(
    client: SyncClient,
    job: JobArgument,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Number of due times.")] = 10,
) -> Output:
    """Show the next due times of a job."""
    answer = client.next_times(find(client, job).job_id, count)
    return Output(answer, rows(answer.items, due_columns(answer.timezone)).text)


@app.command("explain")
@with_client
def explain(
    client: SyncClient,
    job: JobArgument,
    at: Annotated[
        str | None,
        typer.Option(help="Due time: ISO 8601, or e.g. 'in 5m'; default the latest, or first."),
    ] = None,
) -> Output:
    """Explain why a job did or did not fire at a given time."""
    found = find(client, job)
    answer = explanation(client, found, None if at is None else read_instant(at))
    return record(
        answer,
        {
            "job": found.name,
            "schedule": found.schedule,
            "at": answer.at,
            "verdict": answer.verdict.value,
            "why": answer.detail,
            "run": None if answer.run is None else answer.run.run_id,
            "due before": answer.due_before,
            "due after": answer.due_after,
        },
    )


@app.command("export")
@with_client
def export(
    client: SyncClient,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="Job ids or names; by default all jobs.", metavar="JOB…"),
    ] = None,
    tag: TagOption = None,
) -> Output:
    """Print jobs as YAML or JSON for `job apply`, without their state."""
    if jobs and tag:
        raise typer.BadParameter("jobs and --tag cannot be combined")
    found = [find(client, job) for job in jobs or ()] or list(client.list_jobs(tags=read_tags(tag)))
    kept = [job for job in found if job.state in (JobState.ACTIVE, JobState.PAUSED)]
    omitted = len(found) - len(kept)
    notes = (f"omitted {omitted:,} finished, unplanned or refused jobs",) if omitted else ()
    manifest = manifest_of(kept)
    return Output(manifest, to_yaml(manifest), notes)


def explanation(client: SyncClient, job: JobAnswer, at: datetime | None = None) -> ExplainAnswer:
    """Of a given time, or of the latest due time; of the next one if the job was never due."""
    answer = client.explain(job.job_id, now() if at is None else at)
    if at is not None or answer.run is not None:
        return answer
    was_due = answer.due_before is not None and answer.due_before >= job.created_at
    due = answer.due_before if was_due else answer.due_after
    return answer if due is None else client.explain(job.job_id, due)


def find(client: SyncClient, id_or_name: str) -> JobAnswer:
    """The job with this id or name; a name may look like an id."""
    with suppress(ValueError, NotFound):
        return client.get_job(UUID(id_or_name))
    for job in client.list_jobs(name=id_or_name):
        return job
    raise NotFound(f"job {id_or_name!r} not found; list all with `wheelsched job list`")


def _changed(job: JobAnswer, verb: str) -> Output:
    named, more = job.too_late[:MAX_RUNS_NAMED], len(job.too_late) - MAX_RUNS_NAMED
    late = f"; too late for {', '.join(named)}" if named else ""
    late += f" and {more:,} more" if more > 0 else ""
    return sentence(job, f"{verb} {job.name}{late}")


def _shown(job: JobAnswer) -> Output:
    target = job.target
    if job.state in DRAFT_STATES:
        return record(
            job,
            {
                "id": job.job_id,
                "name": job.name,
                "state": job.state.value,
                "error": job.error,
                "schedule": job.schedule,
                "timezone": job.timezone,
                "target": _shown_target(target),
                "payload": job.payload,
                "created": job.created_at,
            },
        )
    return record(
        job,
        {
            "id": job.job_id,
            "name": job.name,
            "state": job.state.value,
            "schedule": job.schedule,
            **{f"warning {number}": text for number, text in enumerate(job.warnings, start=1)},
            "timezone": job.timezone,
            "next run": job.next_run_at,
            **_described_target(target),
            "payload": job.payload,
            "misfire": f"{job.misfire.policy}, grace {job.misfire.grace}, "
            f"window {job.misfire.window}, at most {job.misfire.max_missed}",
            "overlap": _shown_overlap(job.overlap),
            "retry": _shown_retry(job.retry),
            "timeout": job.timeout,
            "jitter": job.jitter,
            "priority": job.priority,
            "dst": f"gap {job.dst.gap}, overlap {job.dst.overlap}",
            "key": job.idempotency_key,
            "tags": job.tags,
            "version": job.version,
            "created": job.created_at,
            "updated": job.updated_at,
            "paused": job.paused_at,
        },
    )


def _shown_target(target: TargetDocument) -> str | None:
    return target.url if target.queue is None else f"queue {target.queue}"


def _described_target(target: TargetDocument) -> dict[str, Any]:
    if target.queue is not None:
        return {"target": f"queue {target.queue}", "claim within": target.claim_within}
    return {
        "target": f"{target.method} {target.url}",
        "batch": target.batch,
        "headers": target.headers,
    }


def _shown_retry(retry: RetryDocument) -> str:
    most = retry.max_attempts or 1  # an answer always has it
    attempts = counted(most, "attempt")
    if most == 1:
        return attempts
    if retry.backoff == Backoff.FIXED:
        return f"{attempts}, fixed at {retry.initial}"
    return f"{attempts}, {retry.backoff} from {retry.initial} to {retry.max}"


def _shown_overlap(overlap: OverlapDocument) -> str:
    most = overlap.max_concurrent
    return str(overlap.policy) if most is None else f"{overlap.policy}, at most {most} at once"
