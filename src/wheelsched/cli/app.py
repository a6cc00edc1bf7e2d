"""The commands, put together: read this first.

Invariant: what exists here is what the contract names; each command is one function of one module,
or one group of them. A module is loaded when its command is asked for: the one that lists jobs
needs no database driver, and should not wait for it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from wheelsched.cli.commands import told_errors
from wheelsched.logs import write_logs

PLACES: Final = {
    "up": "serving:up",
    "demo": "demo:demo",
    "shard": "serving:shard",
    "api": "serving:api",
    "db": "database:app",
    "job": "jobs:app",
    "run": "runs:app",
    "dead": "dead:app",
    "shards": "shards:shards",
    "tenant": "tenants:tenant_app",
    "token": "tenants:token_app",
    "cron": "schedules:app",
    "bench": "bench:app",
    "doctor": "doctor:doctor",
}


class Commands(TyperGroup):
    """The commands, with errors told as a user can act on them.

    Logs are for daemons, which say themselves what they want of them.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in PLACES:
            return None
        module, _, attribute = PLACES[cmd_name].partition(":")
        found = getattr(import_module(f"wheelsched.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(cmd_name)(found)
            found = alone
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        write_logs("error")
        with told_errors():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"wheelsched {version('wheelsched')}")
        raise typer.Exit


@app.callback()
def wheelsched(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A distributed job scheduler that fires on time."""
