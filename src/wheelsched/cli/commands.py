"""What commands have in common: where they ask, how they print, how they fail.

Invariant: a command gives an `Output` and prints nothing itself; so every one of them has --json.
A command that asks the API names a parameter `client`: the options behind it are added to the
command line in its place.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from wheelsched.cli.exits import advice_for, code_of
from wheelsched.cli.output import Output, err, printable, show, times_shown, watch
from wheelsched.client import ClientConfig, SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.errors import ApiError, WheelschedError, first_of

PATIENCE: Final = ClientConfig(max_attempts=3)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Show times in this machine's time zone (TZ), not in UTC.")
]
WatchOption = Annotated[
    bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")
]
IntervalOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="How many to show.")]
AllOption = Annotated[bool, typer.Option("--all", help="Show all, whatever --limit says.")]
UrlOption = Annotated[
    str, typer.Option(envvar="WHEELSCHED_URL", help="The address of the API.", show_default=True)
]
TokenOption = Annotated[
    str | None,
    typer.Option(envvar="WHEELSCHED_TOKEN", help="The token to ask with.", show_envvar=True),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="WHEELSCHED_DATABASE_URL",
        help="The address of the database, postgresql://…",
    ),
]

Command = Callable[..., Output]


def group(meaning: str) -> typer.Typer:
    """A group of commands, which stays one even if it has but one."""
    made = typer.Typer(
        help=meaning, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
    made.callback()(lambda: None)
    return made


@contextmanager
def told_errors() -> Iterator[None]:
    """Ends the command with the code of an error, after telling what it was."""
    try:
        yield
    except (WheelschedError, ExceptionGroup) as error:
        first = first_of(error)
        if first is None:
            raise
        tell(first)
        raise typer.Exit(code_of(first)) from error


def tell(error: WheelschedError) -> None:
    """Says what was wrong, and what would be right."""
    console = err()
    console.print("error:", style="bold red", end=" ")
    if isinstance(error, ApiError) and error.errors:
        console.print("the API cannot use this:")
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


def shows(command: Command) -> Callable[..., None]:
    """A command whose output is printed."""

    def run(as_json: JsonOption = False, **given: Any) -> None:
        show(command(**given), as_json=as_json)

    return with_options(run, command, without=())


def asks_api(command: Command) -> Callable[..., None]:
    """A command that is given a `client` of the API."""

    def run(
        url: UrlOption = DEFAULT_URL,
        token: TokenOption = None,
        local: LocalOption = False,
        as_json: JsonOption = False,
        **given: Any,
    ) -> None:
        with SyncClient(url, token, config=PATIENCE) as client, times_shown(is_local=local):
            show(command(client=client, **given), as_json=as_json)

    return with_options(run, command, without=("client",))


def lists_from_api(command: Command) -> Callable[..., None]:
    """A command that is given a `client` of the API, and can be watched."""

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
            raise typer.BadParameter("--watch needs a terminal, and does not go with --json")
        with SyncClient(url, token, config=PATIENCE) as client, times_shown(is_local=local):
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
    """`run` under the name of `command`, with these parameters: typer reads both."""
    functools.update_wrapper(run, command)
    del run.__wrapped__  # type: ignore[attr-defined]  # or typer would look through it
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return run


def with_options(
    run: Callable[..., None], command: Command, without: tuple[str, ...]
) -> Callable[..., None]:
    """`run` with the options of `command` and its own, but for what it gives the command itself."""
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
