"""`db`: the schema of a database.

Invariant: `migrate` alone changes anything, and does nothing where nothing is missing.
"""

import asyncio

from wheelsched.cli.commands import group, shows
from wheelsched.cli.output import Output, record, sentence
from wheelsched.cli.serving import RequiredDatabaseOption
from wheelsched.daemon.database import migrate_database, read_schema

app = group("The schema of a database.")


@app.command("migrate")
@shows
def migrate(database_url: RequiredDatabaseOption) -> Output:
    """Bring a database to the schema of this program. Safe to run again, and by many at once."""
    applied = asyncio.run(migrate_database(database_url))
    text = f"applied {', '.join(applied)}" if applied else "nothing to do: the schema is current"
    return sentence({"applied": applied}, text)


@app.command("status")
@shows
def status(database_url: RequiredDatabaseOption) -> Output:
    """Show which migrations a database has, and which it lacks."""
    schema = asyncio.run(read_schema(database_url))
    return record(schema, {"applied": schema.applied, "pending": schema.pending})
