"""Output of the commands: data on stdout, as tables or JSON; everything else on stderr.

Invariant: with --json, stdout is exactly one JSON document. Text from users is never interpreted as
markup, and its control characters never reach the terminal.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from itertools import islice
from threading import Event
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wheelsched.errors import ApiUnavailable

Item = TypeVar("Item")

GAP: Final = 2  # spaces between two columns
WIDE: Final = 1_000  # line width without a terminal


class Output(Struct, frozen=True):
    """The result of a command: data, its text for people, and notes for stderr.

    A `str` is printed verbatim, never wrapped.
    """

    data: object
    text: RenderableType
    notes: tuple[str, ...] = ()


_is_local: ContextVar[bool] = ContextVar("is_local", default=False)


@contextmanager
def times_shown(*, is_local: bool) -> Iterator[None]:
    """Shows times in the local time zone or in UTC. JSON is not affected."""
    before = _is_local.set(is_local)
    try:
        yield
    finally:
        _is_local.reset(before)


def due_columns(timezone: str) -> dict[str, Callable[[Any], object]]:
    """Columns of due times: in UTC or the zone of this machine, and in the job's own zone."""
    columns: dict[str, Callable[[Any], object]] = {
        "local" if _is_local.get() else "UTC": lambda due: due.utc
    }
    if _is_local.get() or timezone != "UTC":
        columns[timezone] = lambda due: shown(due.local)
    return columns


def first(items: Iterable[Item], limit: int | None) -> tuple[list[Item], tuple[str, ...]]:
    """The first `limit` items, and a note if there are more."""
    items = iter(items)
    found = list(islice(items, limit))
    if limit is None or next(items, None) is None:
        return found, ()
    return found, (f"showing the first {limit:,}; use --limit or --all to see more",)


def out() -> Console:
    """The console on stdout, for data."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, emoji=False, highlight=False)


def err() -> Console:
    """The console on stderr, for everything else."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def show(output: Output, *, as_json: bool) -> None:
    """Prints an output."""
    if as_json:
        encoded = msgspec.json.format(msgspec.json.encode(output.data), indent=2)
        sys.stdout.write(encoded.decode() + "\n")
    elif isinstance(output.text, str):
        sys.stdout.write(output.text)
    else:
        out().print(output.text)
    for note in output.notes:
        err().print(printable(note), style="dim")


def watch(read: Callable[[], Output], interval_s: float, console: Console | None = None) -> None:
    """Shows the output of a command repeatedly, until Ctrl-C.

    Once it has succeeded, it keeps trying while the API is unavailable.
    """
    ended = Event()
    screen = Live(console=console or out(), screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), screen as live:
        shown = read()
        while True:
            hint = Text(f"refreshing every {interval_s:g} s; press Ctrl-C to quit", style="dim")
            notes = [printable(note) for note in shown.notes]
            live.update(Group(shown.text, *notes, hint), refresh=True)
            ended.wait(interval_s)
            try:
                shown = read()
            except ApiUnavailable as error:
                shown = Output(None, shown.text, (str(error),))


def rows(
    items: Sequence[Item],
    columns: Mapping[str, Callable[[Item], object]],
    notes: tuple[str, ...] = (),
) -> Output:
    """A table with one line per item. Cells that do not fit are cut with an ellipsis."""
    cells = [[cell(read(item)) for read in columns.values()] for item in items]
    return Output(items, Rows(list(columns), cells), notes)


class Rows:
    """A table that fits the terminal: all columns stay, and the widest shrink first."""

    def __init__(self, names: list[str], cells: list[list[Text]]) -> None:
        self._names = names
        self._cells = cells

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [[Text(name) for name in self._names], *self._cells]
        widths = [max(each.cell_len for each in column) for column in zip(*lines, strict=True)]
        most = widest(widths, options.max_width - GAP * (len(widths) - 1))
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for name in self._names:
            table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=most)
        for line in self._cells:
            table.add_row(*line)
        yield table


def widest(widths: Sequence[int], available: int) -> int:
    """The maximum column width at which all columns together fit."""
    left = max(available, len(widths))
    for number, width in enumerate(sorted(widths)):
        share = left // (len(widths) - number)
        if width > share:
            return share
        left -= width
    return max(widths, default=1)


def record(data: object, fields: Mapping[str, object]) -> Output:
    """One item, with one line per field."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, cell(value))
    return Output(data, table)


def sentence(data: object, text: str) -> Output:
    """One line."""
    return Output(data, printable(text))


def cell(value: object) -> Text:
    """A value formatted for people; a dash if there is none."""
    match value:
        case None:
            return Text("–", style="dim")
        case Text():
            return value
        case datetime():
            return Text(shown(value.astimezone() if _is_local.get() else value))
        case msgspec.Raw():
            return printable(bytes(value).decode())
        case float():
            return Text(f"{value:,.1f}")
        case dict():
            return printable(", ".join(f"{name}={each}" for name, each in value.items()) or "–")
        case list() | tuple():
            return printable(", ".join(map(str, value)) or "–")
        case _:
            return printable(str(value))


def printable(text: str) -> Text:
    """The text with control characters replaced."""
    return Text("".join(each if each.isprintable() else "·" for each in text))


def shown(instant: datetime) -> str:
    """An instant with its offset, with milliseconds if it has a fraction."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.isoformat(sep=" ", timespec=precision).replace("+00:00", "Z")
