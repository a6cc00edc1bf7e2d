"""`job apply`: syncs the registered jobs with a file.

Invariant: applying the same file again changes nothing. All jobs are validated before the first is
written, and all problems are reported at once; --dry-run stops there. A later failure names the
failed job and what was done before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Final, TypeVar, cast

import typer
from msgspec import Raw, Struct
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.progress import track
from rich.text import Text

from wheelsched.cli.manifest import (
    Difference,
    Entry,
    differences,
    has_hidden_values,
    patch_of,
    raise_problems,
    read_entries,
)
from wheelsched.cli.option_parsers import read_tags
from wheelsched.cli.output import Output, err, printable
from wheelsched.cli.shared import with_client
from wheelsched.client import JobChanges, JobFields, SyncClient
from wheelsched.core.model import JobState
from wheelsched.errors import (
    InvalidDocument,
    InvalidField,
    InvalidRequest,
    WheelschedError,
    quoted,
)
from wheelsched.wire.job import JobAnswer, JobDocument

Item = TypeVar("Item")

RESCHEDULING: Final = {"schedule", "timezone", "dst.gap", "dst.overlap"}
FAR_FUTURE: Final = Raw(b'"2199-12-31T00:00:00Z"')
MAX_STEPS_NAMED: Final = 20  # completed steps listed after a failure


class Action(StrEnum):
    """What to do with a job."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


class Step(Struct, frozen=True, kw_only=True):
    """One job, and what to do with it and why."""

    name: str
    action: Action
    differences: list[Difference] = []


class Planned(Struct, frozen=True, kw_only=True):
    """A step, and the call that takes it."""

    step: Step
    take: Callable[[], object] = lambda: None


class Plan(Struct, frozen=True, kw_only=True):
    """All steps; with `is_dry` none was taken."""

    steps: list[Step]
    is_dry: bool


@with_client
def apply(
    client: SyncClient,
    file: Annotated[str, typer.Option("--file", "-f", help="Manifest of jobs; - is stdin.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete jobs that are not in the file.")
    ] = False,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Prune only jobs with this tag, NAME=VALUE; repeatable."),
    ] = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Allow --prune with a file without jobs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, without changing it.")
    ] = False,
) -> Output:
    """Sync the registered jobs with a file: create what is missing, update what differs."""
    entries = read_entries(file)
    tags = read_tags(tag)
    if prune and not entries and not allow_empty:
        raise typer.BadParameter(
            f"{file} contains no jobs, so --prune would delete all jobs"
            f"{' with these tags' if tags else ''}; pass --allow-empty if you mean it"
        )
    planned = plan_all(client, entries)
    if prune:
        names = {entry.document.name for entry in entries if entry.document is not None}
        planned += plan_pruning(client, names, tags)
    steps = [each.step for each in planned]
    if not dry_run:
        take(planned)
    return Output(Plan(steps=steps, is_dry=dry_run), Group(*_lines(steps, is_dry=dry_run)))


def _shown_progress(items: Sequence[Item], verb: str) -> Iterable[Item]:
    console = err()
    is_hidden = not console.is_terminal
    return track(items, verb, console=console, transient=True, disable=is_hidden)


def plan_all(client: SyncClient, entries: Sequence[Entry]) -> list[Planned]:
    """The steps that sync the jobs with a file, or all problems of the file."""
    planned: list[Planned] = []
    problems: list[str] = []
    for entry in _shown_progress(entries, "checking"):
        problems += entry.lines(entry.file_errors)
        try:
            if entry.document is None:
                _preview_unread(client, entry)
            else:
                planned += plan(client, entry.document)
        except (InvalidRequest, InvalidDocument) as error:
            problems += entry.lines(error.errors or [InvalidField(str(error))])
        except InvalidField as error:
            problems += entry.lines([error])
    raise_problems(problems)
    return planned


def _preview_unread(client: SyncClient, entry: Entry) -> None:
    """Lets the API validate a job that could not be decoded, to find all its other problems."""
    if isinstance(entry.tree, dict):
        client.preview(cast("JobFields", entry.tree))
    raise InvalidDocument(errors=entry.errors)


def plan(client: SyncClient, document: JobDocument) -> list[Planned]:
    """The steps that sync one job with its document."""
    found = next(client.list_jobs(name=document.name), None)
    if found is None:
        return [_plan_creation(client, document)]
    if found.state is JobState.REFUSED:  # cannot be updated
        refused = Difference(field="state", before=found.state, after=None)
        return [_plan_deletion(client, found, refused), _plan_creation(client, document)]
    return [_plan_update(client, found, document)]


def _plan_creation(client: SyncClient, document: JobDocument) -> Planned:
    client.preview(document)
    step = Step(name=document.name, action=Action.CREATE)
    return Planned(step=step, take=partial(client.create_job, document))


def _plan_deletion(client: SyncClient, job: JobAnswer, *reasons: Difference) -> Planned:
    step = Step(name=job.name, action=Action.DELETE, differences=list(reasons))
    return Planned(step=step, take=partial(client.delete_job, job.job_id, version=job.version))


def _plan_update(client: SyncClient, found: JobAnswer, document: JobDocument) -> Planned:
    different = differences(found, document)
    hidden: Sequence[str] = ()
    if different or has_hidden_values(document):
        hidden = _preview_update(client, document, {each.field for each in different})
        different = differences(found, document, hidden)
    if not different:
        return Planned(step=Step(name=document.name, action=Action.KEEP))
    changes = cast("JobChanges", patch_of(found, document))
    step = Step(name=document.name, action=Action.UPDATE, differences=different)
    take = partial(client.update_job, found.job_id, changes, version=found.version)
    return Planned(step=step, take=take)


def _preview_update(client: SyncClient, document: JobDocument, fields: set[str]) -> Sequence[str]:
    """Validates a document, and returns the pointers of the hidden values that it changes.

    An unchanged schedule is not validated again, because it may have ended since.
    """
    try:
        return client.preview(document).hidden_changes or ()
    except InvalidRequest as error:
        if fields & RESCHEDULING or not error.errors:
            raise
        if any(not each.pointer.startswith("/schedule") for each in error.errors):
            raise
    coming = replace(document, schedule=FAR_FUTURE)
    return client.preview(coming).hidden_changes or () if has_hidden_values(document) else ()


def plan_pruning(client: SyncClient, names: set[str], tags: dict[str, str]) -> Iterator[Planned]:
    for job in client.list_jobs(tags=tags):
        if _is_prunable(job, names):
            yield _plan_deletion(client, job)


def take(planned: list[Planned]) -> None:
    """Takes all steps; on an error, notes what was done and what was not."""
    to_take = [each for each in planned if each.step.action is not Action.KEEP]
    for number, each in enumerate(_shown_progress(to_take, "applying")):
        try:
            each.take()
        except WheelschedError as error:
            error.add_note(_progress_note([each.step for each in to_take], number))
            raise


def _progress_note(steps: list[Step], number: int) -> str:
    failed, done = steps[number], steps[:number]
    named = (
        ", ".join(f"{step.action} {quoted(step.name)}" for step in done[:MAX_STEPS_NAMED])
        or "nothing"
    )
    more = f" and {len(done) - MAX_STEPS_NAMED} more" if len(done) > MAX_STEPS_NAMED else ""
    return (
        f"failed step: {failed.action} {quoted(failed.name)}; done before: {named}{more}; "
        f"not done: {len(steps) - number} of {len(steps)}; run the same command to continue"
    )


def _is_prunable(job: JobAnswer, names: set[str]) -> bool:
    """Finished jobs are excluded: retention removes them."""
    return job.name not in names and job.state is not JobState.FINISHED


def _lines(steps: list[Step], *, is_dry: bool) -> Iterator[RenderableType]:
    signs = {
        Action.CREATE: ("+", "green"),
        Action.UPDATE: ("~", "yellow"),
        Action.DELETE: ("-", "red"),
    }
    for step in steps:
        if step.action not in signs:
            continue
        sign, style = signs[step.action]
        yield Text(f"{sign} ", style=style) + printable(step.name)
        for each in step.differences:
            yield printable(f"    {each.field}: {_word(each.before)} → {_word(each.after)}")
    counts = [f"{sum(step.action is action for step in steps)} to {action}" for action in Action]
    yield Text(
        ", ".join(counts) + (" (dry run, nothing was changed)" if is_dry else ""), style="dim"
    )


def _word(value: object) -> str:
    return "nothing" if value is None else str(value)
