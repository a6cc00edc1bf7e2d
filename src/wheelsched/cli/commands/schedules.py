"""`cron explain`: what a schedule means.

Invariant: it needs neither API nor database; it uses the same code as the shard.
"""

from typing import Annotated
from uuid import UUID

import typer
from msgspec import Struct
from rich.console import Group
from rich.text import Text

from wheelsched.cli.output import Output, rows
from wheelsched.cli.shared import group, with_output
from wheelsched.clock import SystemClock
from wheelsched.schedule.explain import DueTime
from wheelsched.schedule.explain import explain as explain_spec
from wheelsched.schedule.parse import parse

app = group("Explain schedules.")


class ExplainedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule and its meaning."""

    schedule: str
    timezone: str
    words: str
    next_times: tuple[DueTime, ...]
    warnings: tuple[str, ...]


@app.command("explain")
@with_output
def explain(
    schedule: Annotated[
        str,
        typer.Argument(help="Cron expression, 'every 5m', 'in 5m', 'RRULE:…' or ISO 8601 time."),
    ],
    timezone: Annotated[str, typer.Option(help="Time zone, e.g. Europe/London.")] = "UTC",
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Number of due times.")] = 5,
) -> Output:
    """Describe a schedule, its next due times, and the effect of clock changes.

    H stands for a value that depends on the job id; an arbitrary id is used here.
    """
    now_us = SystemClock.wall_us()
    spec = parse(schedule, timezone=timezone, now_us=now_us)
    found = explain_spec(spec, UUID(int=0), now_us=now_us, count=count)
    columns = {"UTC": lambda due: due.utc, timezone: lambda due: due.local}
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
