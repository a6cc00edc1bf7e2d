"""`job apply`: makes what is registered what a file says.

Invariant: what a second run of the same file would do is nothing. With --dry-run the API is asked
and nothing is written.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, cast

import typer
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.progress import track
from rich.text import Text

from wheelsched.cli.commands import asks_api
from wheelsched.cli.manifest import Difference, differences, patch_of, read_documents
from wheelsched.cli.output import Output, err, printable
from wheelsched.cli.written import read_pairs
from wheelsched.client import JobChanges, SyncClient
from wheelsched.core.model import JobState
from wheelsched.wire.job import JobAnswer, JobDocument


class Action(StrEnum):
    """What becomes of a job."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


class Step(Struct, frozen=True, kw_only=True):
    """One job, what becomes of it, and why."""

    name: str
    action: Action
    differences: list[Difference] = []


class Plan(Struct, frozen=True, kw_only=True):
    """All of them; `is_dry` says that nothing was done."""

    steps: list[Step]
    is_dry: bool


@asks_api
def apply(
    client: SyncClient,
    file: Annotated[str, typer.Option("--file", "-f", help="A list of jobs; - is stdin.")],
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the jobs that the file does not name.")
    ] = False,
    tag: Annotated[
        list[str] | None, typer.Option(help="Prune only those with NAME=VALUE; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
) -> Output:
    """Create and update jobs until they are what a file says."""
    documents = read_documents(file)
    tags = read_pairs(tag or [], "=", "team=a")
    steps = [
        _apply_one(client, document, is_dry=dry_run) for document in _shown_progress(documents)
    ]
    if prune:
        names = {document.name for document in documents}
        steps += _prune(client, names, tags, is_dry=dry_run)
    return Output(Plan(steps=steps, is_dry=dry_run), Group(*_lines(steps, is_dry=dry_run)))


def _shown_progress(documents: list[JobDocument]) -> Iterable[JobDocument]:
    console = err()
    is_hidden = not console.is_terminal
    return track(documents, "applying", console=console, transient=True, disable=is_hidden)


def _apply_one(client: SyncClient, document: JobDocument, *, is_dry: bool) -> Step:
    found = next(client.list_jobs(name=document.name), None)
    if found is None:
        if is_dry:
            client.preview(document)
        else:
            client.create_job(document)
        return Step(name=document.name, action=Action.CREATE)
    different = differences(found, document)
    if not different:
        return Step(name=document.name, action=Action.KEEP)
    if not is_dry:
        changes = cast("JobChanges", patch_of(found, document))
        client.update_job(found.job_id, changes, version=found.version)
    return Step(name=document.name, action=Action.UPDATE, differences=different)


def _prune(
    client: SyncClient, names: set[str], tags: dict[str, str], *, is_dry: bool
) -> Iterator[Step]:
    for job in [job for job in client.list_jobs(tags=tags) if _is_to_go(job, names)]:
        if not is_dry:
            client.delete_job(job.job_id, version=job.version)
        yield Step(name=job.name, action=Action.DELETE)


def _is_to_go(job: JobAnswer, names: set[str]) -> bool:
    """One-offs that have ended go by themselves."""
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
    yield Text(", ".join(counts) + (" (nothing was done)" if is_dry else ""), style="dim")


def _word(value: object) -> str:
    return "nothing" if value is None else str(value)
