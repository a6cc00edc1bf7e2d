"""`dead`: dead runs.

Invariant: with the same options, including --limit, `redrive` retries what `list` shows: the oldest
runs. Their default limits differ.
"""

from typing import Annotated

import typer

from wheelsched.cli.commands.jobs import find
from wheelsched.cli.commands.runs import run_rows
from wheelsched.cli.option_parsers import read_optional_instant
from wheelsched.cli.output import Output, first, sentence
from wheelsched.cli.shared import AllOption, LimitOption, group, with_client, with_watchable_client
from wheelsched.client import SyncClient
from wheelsched.wire.run import MAX_REDRIVE, RedriveRequest

app = group("List and redrive dead runs.")

JobOption = Annotated[str | None, typer.Option(help="Only runs of this job, by id or name.")]
SinceOption = Annotated[
    str | None, typer.Option(help="Start of the range: ISO 8601, or relative, e.g. 2h.")
]
UntilOption = Annotated[
    str | None, typer.Option(help="End of the range (exclusive): ISO 8601, or relative, e.g. now.")
]


@app.command("list")
@with_watchable_client
def list_dead(
    client: SyncClient,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 100,
    show_all: AllOption = False,
) -> Output:
    """List dead runs, oldest first."""
    found = client.list_dead(
        job_id=None if job is None else find(client, job).job_id,
        since=read_optional_instant(since),
        until=read_optional_instant(until),
    )
    return run_rows(*first(found, None if show_all else limit))


@app.command("redrive")
@with_client
def redrive(
    client: SyncClient,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_REDRIVE, help="Maximum number of runs.")
    ] = 1_000,
    rate: Annotated[int | None, typer.Option(min=1, help="Maximum runs per second.")] = None,
) -> Output:
    """Retry dead runs, oldest first."""
    requested = client.redrive(
        RedriveRequest(
            job_id=None if job is None else find(client, job).job_id,
            since=read_optional_instant(since),
            until=read_optional_instant(until),
            limit=limit,
            rate=rate,
        )
    )
    return sentence(requested, f"{requested.count:,} runs will be retried")
