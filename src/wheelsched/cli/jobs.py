"""`job`: what people do with jobs.

Invariant: a job is named by its id or by its name, wherever one is asked for.
"""

from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

import typer
from msgspec import UNSET

from wheelsched.cli.apply import apply
from wheelsched.cli.commands import AllOption, LimitOption, asks_api, group, lists_from_api
from wheelsched.cli.export import manifest_of, to_yaml
from wheelsched.cli.fields import takes_fields, written_over
from wheelsched.cli.manifest import read_one
from wheelsched.cli.output import Output, first, record, rows, sentence, shown
from wheelsched.cli.written import read_instant, read_payload, read_tags
from wheelsched.client import SyncClient
from wheelsched.core.model import DRAFT_STATES, JobState
from wheelsched.errors import NotFound
from wheelsched.wire.job import JobAnswer, OverlapDocument
from wheelsched.wire.jobs import ResumeFrom

app = group("Create jobs, look at them, and change them.")

JobArgument = Annotated[str, typer.Argument(help="The job's id, or its name.", metavar="JOB")]
TagOption = Annotated[list[str] | None, typer.Option(help="Only jobs with NAME=VALUE.")]


@app.command("create")
@asks_api
@takes_fields
def create(
    client: SyncClient,
    fields: dict[str, Any],
    name: Annotated[str | None, typer.Argument(help="Unique in the tenant.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="A document to begin with; - is stdin.")
    ] = None,
) -> Output:
    """Register a job."""
    document = written_over({} if file is None else read_one(file), fields)
    if name is not None:
        document["name"] = name
    lacking = [field for field in ("name", "schedule", "target") if field not in document]
    if lacking:
        raise typer.BadParameter(
            f"a job needs {', '.join(lacking)}, as in: wheelsched job create weekly-report "
            "--schedule '0 9 * * 1' --target https://example.org/hooks/report"
        )
    return _shown(client.create_job(document))  # type: ignore[arg-type]  # the API judges it


app.command("apply")(apply)


@app.command("list")
@lists_from_api
def list_jobs(
    client: SyncClient,
    state: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only the one of this name.")] = None,
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
            "target": lambda job: job.target.url,
            "id": lambda job: job.job_id,
        },
        notes,
    )


@app.command("get")
@asks_api
def get(client: SyncClient, job: JobArgument) -> Output:
    """Show a job with every default written out."""
    return _shown(find(client, job))


@app.command("update")
@asks_api
@takes_fields
def update(
    client: SyncClient,
    fields: dict[str, Any],
    job: JobArgument,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    version: Annotated[
        int | None, typer.Option(help="Only if the job still has this version.")
    ] = None,
) -> Output:
    """Change what the options name, and nothing else."""
    changes = fields if name is None else fields | {"name": name}
    if not changes:
        raise typer.BadParameter("there is nothing to change: name a field, as --timeout 30s")
    found = find(client, job)
    return _shown(client.update_job(found.job_id, changes, version=version))  # type: ignore[arg-type]


@app.command("delete")
@asks_api
def delete(client: SyncClient, job: JobArgument) -> Output:
    """Delete a job. Its history stays for its retention."""
    found = find(client, job)
    return _changed(client.delete_job(found.job_id) or found, "deleted")


@app.command("pause")
@asks_api
def pause(client: SyncClient, job: JobArgument) -> Output:
    """Stop the schedule of a job. What is in flight goes on."""
    return _changed(client.pause_job(find(client, job).job_id), "paused")


@app.command("resume")
@asks_api
def resume(
    client: SyncClient,
    job: JobArgument,
    start: Annotated[
        ResumeFrom, typer.Option("--from", help="Where to go on; what was missed, by its policy.")
    ] = ResumeFrom.NOW,
) -> Output:
    """Start the schedule of a job again."""
    return _changed(client.resume_job(find(client, job).job_id, start), "resumed")


@app.command("trigger")
@asks_api
def trigger(
    client: SyncClient,
    job: JobArgument,
    payload: Annotated[
        str | None, typer.Option(help="JSON, or @FILE: sent in place of the job's payload.")
    ] = None,
) -> Output:
    """Run a job now, beside its schedule."""
    own = UNSET if payload is None else read_payload(payload)
    requested = client.trigger_job(find(client, job).job_id, own)
    return sentence(requested, f"run {requested.run_ids[0]}")


@app.command("backfill")
@asks_api
def backfill(
    client: SyncClient,
    job: JobArgument,
    since: Annotated[str, typer.Option(help="Start of the range: ISO-8601, or e.g. 2h ago.")],
    until: Annotated[str, typer.Option(help="End of the range (exclusive).")] = "now",
    preview: Annotated[bool, typer.Option("--preview", help="Only count them.")] = False,
) -> Output:
    """Run the due times of a range in the past."""
    start, end = read_instant(since), read_instant(until)
    requested = client.backfill_job(find(client, job).job_id, start, end, preview=preview)
    verb = "would be put in line" if preview else "are in line"
    return sentence(requested, f"{requested.count:,} runs {verb}")


@app.command("next")
@asks_api
def next_times(
    client: SyncClient,
    job: JobArgument,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many.")] = 10,
) -> Output:
    """Show the coming due times of a job."""
    answer = client.next_times(find(client, job).job_id, count)
    columns = {"utc": lambda due: shown(due.utc), answer.timezone: lambda due: shown(due.local)}
    return Output(answer, rows(answer.items, columns).text)


@app.command("explain")
@asks_api
def explain(
    client: SyncClient,
    job: JobArgument,
    at: Annotated[
        str | None,
        typer.Option(help="Which due time: ISO-8601, or e.g. 'in 5m'; by default the latest."),
    ] = None,
) -> Output:
    """Explain why a job did, or did not, fire at a time."""
    found = find(client, job)
    asked = read_instant("now" if at is None else at)
    answer = client.explain(found.job_id, asked)
    if at is None and answer.run is None and answer.due_before is not None:
        answer = client.explain(found.job_id, answer.due_before)
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
@asks_api
def export(
    client: SyncClient,
    jobs: Annotated[
        list[str] | None, typer.Argument(help="Ids or names; all jobs by default.", metavar="JOB…")
    ] = None,
    tag: TagOption = None,
) -> Output:
    """Print jobs as YAML, or JSON, that `job apply` takes back, without their state."""
    if jobs and tag:
        raise typer.BadParameter("name jobs or tags, not both")
    found = [find(client, job) for job in jobs or ()] or list(client.list_jobs(tags=read_tags(tag)))
    kept = [job for job in found if job.state in (JobState.ACTIVE, JobState.PAUSED)]
    left_out = len(found) - len(kept)
    notes = (f"left out {left_out:,} finished, unplanned or refused jobs",) if left_out else ()
    manifest = manifest_of(kept)
    return Output(manifest, to_yaml(manifest), notes)


def find(client: SyncClient, written: str) -> JobAnswer:
    """The job of an id, or of a name, which may look like an id."""
    with suppress(ValueError, NotFound):
        return client.get_job(UUID(written))
    for job in client.list_jobs(name=written):
        return job
    raise NotFound(f"there is no job {written!r}; `wheelsched job list` shows all")


def _changed(job: JobAnswer, verb: str) -> Output:
    late = f"; too late for {', '.join(job.too_late)}" if job.too_late else ""
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
                "target": target.url,
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
            "target": f"{target.method} {target.url}",
            "batch": target.batch,
            "headers": target.headers,
            "payload": job.payload,
            "misfire": f"{job.misfire.policy}, grace {job.misfire.grace}, "
            f"window {job.misfire.window}, at most {job.misfire.max_missed}",
            "overlap": _shown_overlap(job.overlap),
            "retry": f"{job.retry.max_attempts} attempts, {job.retry.backoff} from "
            f"{job.retry.initial} to {job.retry.max}",
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


def _shown_overlap(overlap: OverlapDocument) -> str:
    most = overlap.max_concurrent
    return str(overlap.policy) if most is None else f"{overlap.policy}, at most {most} at once"
