"""Shared plumbing of the commands: the API client, output and error handling.

Invariant: a command returns an `Output` and prints nothing itself, so every command has --json. A
command with a parameter `client` gets the connection options on the command line instead.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from wheelsched.cli.exit_codes import advice_for, code_of
from wheelsched.cli.output import Output, err, printable, show, times_shown, watch
from wheelsched.client import ClientConfig, SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.errors import ApiError, WheelschedError, first_of

CLIENT_CONFIG: Final = ClientConfig(max_attempts=3)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Show times in the local time zone (TZ) instead of UTC.")
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Refresh the output until Ctrl-C.")]
IntervalOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds between two refreshes with --watch.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of items.")]
AllOption = Annotated[bool, typer.Option("--all", help="Show all items, regardless of --limit.")]
UrlOption = Annotated[
    str, typer.Option(envvar="WHEELSCHED_URL", help="URL of the API.", show_default=True)
]
TokenOption = Annotated[
    str | None,
    typer.Option(envvar="WHEELSCHED_TOKEN", help="API token.", show_envvar=True),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="WHEELSCHED_DATABASE_URL",
        help="Database URL, postgresql://…",
    ),
]

Command = Callable[..., Output]


def group(description: str) -> typer.Typer:
    """A command group, even if it has only one command."""
    made = typer.Typer(
        help=description, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
    made.callback()(lambda: None)
    return made


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Prints an error and exits with its exit code."""
    try:
        yield
    except (WheelschedError, ExceptionGroup) as error:
        first = first_of(error)
        if first is None:
            raise
        print_error(first)
        raise typer.Exit(code_of(first)) from error


def print_error(error: WheelschedError) -> None:
    """Prints what was wrong, and what to do about it."""
    console = err()
    console.print("error:", style="bold red", end=" ")
    if isinstance(error, ApiError) and error.errors:
        console.print("the API rejected the request:")
        for field in error.errors:
            console.print(printable(f"  {field.pointer or '/'}: {field}"))
    else:
        for line in str(error).splitlines() or [""]:
            console.print(printable(line))
    for note in getattr(error, "__notes__", ()):
        console.print(printable(note))
    advice = advice_for(error)
    if advice is not None:
        console.print(advice, style="dim")


def with_output(command: Command) -> Callable[..., None]:
    """Prints the output of a command."""

    def run(as_json: JsonOption = False, **given: Any) -> None:
        show(command(**given), as_json=as_json)

    return with_options(run, command, without=())


def with_client(command: Command) -> Callable[..., None]:
    """Gives a command a `client` of the API, and prints its output."""

    def run(
        url: UrlOption = DEFAULT_URL,
        token: TokenOption = None,
        local: LocalOption = False,
        as_json: JsonOption = False,
        **given: Any,
    ) -> None:
        with SyncClient(url, token, config=CLIENT_CONFIG) as client, times_shown(is_local=local):
            show(command(client=client, **given), as_json=as_json)

    return with_options(run, command, without=("client",))


def with_watchable_client(command: Command) -> Callable[..., None]:
    """Like `with_client`, with the option --watch."""

    def run(
        url: UrlOption = DEFAULT_URL,
        token: TokenOption = None,
        local: LocalOption = False,
        watching: WatchOption = False,
        interval: IntervalOption = 2.0,
        as_json: JsonOption = False,
        **given: Any,
    ) -> None:
        if watching and (as_json or not sys.stdout.isatty()):
            raise typer.BadParameter(
                "--watch requires a terminal and cannot be combined with --json"
            )
        with SyncClient(url, token, config=CLIENT_CONFIG) as client, times_shown(is_local=local):
            if watching:
                watch(lambda: command(client=client, **given), interval)
            else:
                show(command(client=client, **given), as_json=as_json)

    return with_options(run, command, without=("client",))


def with_parameters(
    run: Callable[..., Any],
    command: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
) -> Callable[..., Any]:
    """`run` with the name and docstring of `command` and the given parameters, as typer reads
    them."""
    functools.update_wrapper(run, command)
    del run.__wrapped__  # type: ignore[attr-defined]  # typer would follow it
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return run


def with_options(
    run: Callable[..., None], command: Command, without: tuple[str, ...]
) -> Callable[..., None]:
    """`run` with its own options and those of `command`, except the ones in `without`."""
    own = inspect.signature(command).parameters
    added = inspect.signature(run).parameters
    merged = {name: each for name, each in own.items() if name not in without}
    merged |= {
        name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in added.items()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    }
    keyworded = {
        name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in merged.items()
    }
    return with_parameters(run, command, keyworded)
