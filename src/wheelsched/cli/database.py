"""`db`: the schema of a database, and the settings of the installation in it.

Invariant: `migrate` and `settings` alone change anything, and `settings` only what is given.
"""

import asyncio
from typing import Annotated

import typer
from msgspec.structs import asdict

from wheelsched.cli.commands import group, shows
from wheelsched.cli.output import Output, record, sentence
from wheelsched.cli.serving import RequiredDatabaseOption
from wheelsched.daemon.database import (
    change_database_settings,
    migrate_database,
    read_database_settings,
    read_schema,
)

app = group("The schema of a database, and its settings.")


@app.command("migrate")
@shows
def migrate(database_url: RequiredDatabaseOption) -> Output:
    """Bring a database to the schema of this program. Safe to run again, and by many at once."""
    applied = asyncio.run(migrate_database(database_url))
    text = (
        f"applied {', '.join(applied)}"
        if applied
        else "nothing to apply: schema, roles and rights are current"
    )
    return sentence({"applied": applied}, text)


@app.command("status")
@shows
def status(database_url: RequiredDatabaseOption) -> Output:
    """Show which migrations a database has, which it lacks, and its settings."""
    schema = asyncio.run(read_schema(database_url))
    settings = asdict(schema.settings) if schema.settings else {}
    return record(schema, {"applied": schema.applied, "pending": schema.pending, **settings})


@app.command("settings")
@shows
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
    """Show the settings of the installation, or change those that are given.

    Shards follow a change within the hour, without a restart.
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
