"""The commands of the CLI; start reading here.

Invariant: each command is one function, or one group, of one module. A module is imported only when
its command runs, so `job list` does not load the database driver.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from wheelsched.cli.shared import exit_on_error
from wheelsched.logs import write_logs

COMMANDS: Final = {
    "up": "serving:up",
    "demo": "demo:demo",
    "shard": "serving:shard",
    "api": "serving:api",
    "db": "database:app",
    "job": "jobs:app",
    "run": "runs:app",
    "dead": "dead:app",
    "queue": "queues:app",
    "worker": "worker:worker",
    "shards": "shards:shards",
    "tenant": "tenants:tenant_app",
    "token": "tenants:token_app",
    "cron": "schedules:app",
    "bench": "bench:app",
    "doctor": "doctor:doctor",
}


class Commands(TyperGroup):
    """The command group: loads commands lazily and turns errors into messages and exit codes.

    Commands log errors only; the daemons set their own log level.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"wheelsched.cli.commands.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            found = single
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        write_logs("error")
        with exit_on_error():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"wheelsched {version('wheelsched')}")
        raise typer.Exit


@app.callback()
def wheelsched(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A distributed job scheduler that fires on time."""
