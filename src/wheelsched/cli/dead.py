"""`dead`: runs that are out of attempts.

Invariant: with the same options, --limit among them, `redrive` puts in line again what `list`
shows: the oldest. Where --limit is left away, `redrive` takes more of them than `list` shows.
"""

from typing import Annotated

import typer

from wheelsched.cli.commands import AllOption, LimitOption, asks_api, group, lists_from_api
from wheelsched.cli.jobs import find
from wheelsched.cli.output import Output, first, sentence
from wheelsched.cli.runs import run_rows
from wheelsched.cli.written import read_optional_instant
from wheelsched.client import SyncClient
from wheelsched.wire.run import MAX_REDRIVE, RedriveRequest

app = group("Runs that are out of attempts.")

JobOption = Annotated[str | None, typer.Option(help="Only those of this job, by id or name.")]
SinceOption = Annotated[
    str | None, typer.Option(help="Due at or after: ISO-8601, or relative, e.g. 2h.")
]
UntilOption = Annotated[
    str | None, typer.Option(help="Due before: ISO-8601, or relative, e.g. now.")
]


@app.command("list")
@lists_from_api
def list_dead(
    client: SyncClient,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 100,
    show_all: AllOption = False,
) -> Output:
    """List runs that are out of attempts, oldest first."""
    found = client.list_dead(
        job_id=None if job is None else find(client, job).job_id,
        since=read_optional_instant(since),
        until=read_optional_instant(until),
    )
    return run_rows(*first(found, None if show_all else limit))


@app.command("redrive")
@asks_api
def redrive(
    client: SyncClient,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_REDRIVE, help="At most so many.")] = 1_000,
    rate: Annotated[int | None, typer.Option(min=1, help="At most so many a second.")] = None,
) -> Output:
    """Put runs in line again that are out of attempts, oldest first."""
    requested = client.redrive(
        RedriveRequest(
            job_id=None if job is None else find(client, job).job_id,
            since=read_optional_instant(since),
            until=read_optional_instant(until),
            limit=limit,
            rate=rate,
        )
    )
    return sentence(requested, f"{requested.count:,} runs are in line again")
