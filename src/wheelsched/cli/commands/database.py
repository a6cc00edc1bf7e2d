"""`db`: migrations and settings of the database.

Invariant: only `migrate` and `settings` change anything, and `settings` only what is given.
"""

import asyncio
from typing import Annotated

import typer
from msgspec.structs import asdict

from wheelsched.cli.commands.serving import RequiredDatabaseOption
from wheelsched.cli.output import Output, record, sentence
from wheelsched.cli.shared import group, with_output
from wheelsched.daemon.database import (
    MigrationReport,
    change_database_settings,
    migrate_database,
    read_database_settings,
    read_schema,
)

app = group("Migrate the database and change its settings.")


@app.command("migrate")
@with_output
def migrate(database_url: RequiredDatabaseOption) -> Output:
    """Apply pending migrations. Safe to run repeatedly and concurrently."""
    report = asyncio.run(migrate_database(database_url))
    return sentence(asdict(report), describe_migration(report))


def describe_migration(report: MigrationReport) -> str:
    """A report in words: the migrations, and what was repaired, e.g. after a restore."""
    done = [f"applied {', '.join(report.applied)}"] if report.applied else []
    if repaired := report.repaired:
        more = f" and {len(repaired) - 1} more" if len(repaired) > 1 else ""
        verb = "created" if report.applied else "repaired"
        done.append(f"{verb} roles and privileges: {repaired[0]}{more}")
    return "; ".join(done) or "nothing to apply; schema, roles and privileges are up to date"


@app.command("status")
@with_output
def status(database_url: RequiredDatabaseOption) -> Output:
    """Show applied and pending migrations, and the settings."""
    schema = asyncio.run(read_schema(database_url))
    settings = asdict(schema.settings) if schema.settings else {}
    return record(schema, {"applied": schema.applied, "pending": schema.pending, **settings})


@app.command("settings")
@with_output
def settings(
    database_url: RequiredDatabaseOption,
    history_days: Annotated[
        int | None, typer.Option(help="Days to keep runs and attempts, e.g. 30.")
    ] = None,
    dead_days: Annotated[
        int | None,
        typer.Option(help="Days to keep dead runs; at least as many as --history-days, e.g. 90."),
    ] = None,
    finished_days: Annotated[
        int | None, typer.Option(help="Days to keep finished and refused jobs, e.g. 7.")
    ] = None,
) -> Output:
    """Show the settings of the installation, or change the given ones.

    Shards pick up a change within an hour, without a restart.
    """
    given = {
        "history_days": history_days,
        "dead_days": dead_days,
        "finished_days": finished_days,
    }
    changes = {name: days for name, days in given.items() if days is not None}
    if changes:
        current = asyncio.run(change_database_settings(database_url, changes))
    else:
        current = asyncio.run(read_database_settings(database_url))
    return record(current, asdict(current))
