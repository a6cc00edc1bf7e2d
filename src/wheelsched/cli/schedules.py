"""`cron explain`: what a schedule means.

Invariant: it asks nobody and needs no database: the core alone answers, as it does in the shard.
"""

from typing import Annotated
from uuid import UUID

import typer
from msgspec import Struct
from rich.console import Group
from rich.text import Text

from wheelsched.cli.commands import group, shows
from wheelsched.cli.output import Output, rows
from wheelsched.clock import SystemClock
from wheelsched.core.explain import DueTime
from wheelsched.core.explain import explain as explain_spec
from wheelsched.core.schedule import parse

app = group("What schedules mean.")


class ExplainedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule and what it means."""

    schedule: str
    timezone: str
    words: str
    next_times: tuple[DueTime, ...]
    warnings: tuple[str, ...]


@app.command("explain")
@shows
def explain(
    schedule: Annotated[
        str, typer.Argument(help="Cron, 'every 5m', 'in 5m', 'RRULE:…' or an instant.")
    ],
    timezone: Annotated[str, typer.Option(help="A time zone, as Europe/London.")] = "UTC",
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many times.")] = 5,
) -> Output:
    """Say in words when a schedule is due, its next times, and what clock changes do to it.

    An H stands for a time that the job's id decides; here for that of one job among all.
    """
    now_us = SystemClock.wall_us()
    spec = parse(schedule, timezone=timezone, now_us=now_us)
    found = explain_spec(spec, UUID(int=0), now_us=now_us, count=count)
    columns = {"utc": lambda due: due.utc, timezone: lambda due: due.local}
    if timezone == "UTC":
        del columns["utc"]
    times = rows(found.next_times, columns)
    warnings = [Text(f"! {warning}", style="yellow") for warning in found.warnings]
    return Output(
        ExplainedSchedule(
            schedule=schedule,
            timezone=timezone,
            words=found.words,
            next_times=found.next_times,
            warnings=found.warnings,
        ),
        Group(Text(found.words, style="bold"), times.text, *warnings),
    )
