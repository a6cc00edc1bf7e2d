"""What commands print: data on stdout, as tables for people or as JSON; all else on stderr.

Invariant: with --json the output is one JSON document, and nothing else. No text of a user is read
as markup, and no control character of it reaches the terminal.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from itertools import islice
from threading import Event
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wheelsched.errors import ApiUnavailable

Item = TypeVar("Item")

GAP: Final = 2  # between two columns
WIDE: Final = 1_000  # where no terminal bounds it, a line is as long as it has to be


class Output(Struct, frozen=True):
    """What a command found: the data, the same to be read by people, and remarks for stderr.

    Text that is a `str` is a document: printed as it is, never wrapped.
    """

    data: object
    text: RenderableType
    notes: tuple[str, ...] = ()


_is_local: ContextVar[bool] = ContextVar("is_local", default=False)


@contextmanager
def times_shown(*, is_local: bool) -> Iterator[None]:
    """Shows times in the zone of this machine, or in UTC. JSON stays as the API wrote it."""
    before = _is_local.set(is_local)
    try:
        yield
    finally:
        _is_local.reset(before)


def first(items: Iterable[Item], limit: int | None) -> tuple[list[Item], tuple[str, ...]]:
    """As many items as a list shows, and a note if there are more."""
    items = iter(items)
    found = list(islice(items, limit))
    if limit is None or next(items, None) is None:
        return found, ()
    return found, (f"showing {limit:,} of more; raise --limit, or use --all",)


def out() -> Console:
    """Where data goes."""
    width = None if sys.stdout.isatty() else WIDE
    return Console(width=width, markup=False, emoji=False, highlight=False)


def err() -> Console:
    """Where everything else goes."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)


def show(output: Output, *, as_json: bool) -> None:
    """Prints it."""
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
    """Shows what a command finds again and again, until Ctrl-C.

    An API that is away for a while is waited for, once it has answered.
    """
    ended = Event()
    screen = Live(console=console or out(), screen=True, auto_refresh=False)
    with suppress(KeyboardInterrupt), screen as live:
        shown = read()
        while True:
            hint = Text(f"every {interval_s:g} s; Ctrl-C ends", style="dim")
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
    """A table with a line for each item. What does not fit the terminal is cut with an ellipsis."""
    cells = [[cell(read(item)) for read in columns.values()] for item in items]
    return Output(items, Rows(list(columns), cells), notes)


class Rows:
    """A table that fits: every column stays, and the widest give way first."""

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
    """How wide a column may be, so that all of them together take no more than there is."""
    left = max(available, len(widths))
    for number, width in enumerate(sorted(widths)):
        share = left // (len(widths) - number)
        if width > share:
            return share
        left -= width
    return max(widths, default=1)


def record(data: object, fields: Mapping[str, object]) -> Output:
    """One thing, a line for each of its fields."""
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
    """A value as people read it; nothing, where there is none."""
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
    """Text of somebody else, without what a terminal would obey."""
    return Text("".join(each if each.isprintable() else "·" for each in text))


def shown(instant: datetime) -> str:
    """An instant with its offset, to the millisecond where it has some."""
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.isoformat(sep=" ", timespec=precision).replace("+00:00", "Z")
