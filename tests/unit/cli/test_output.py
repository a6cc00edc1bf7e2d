"""Tables that fit the terminal, and text that is safe to print."""

import json
import time
from datetime import UTC, datetime
from io import StringIO
from operator import itemgetter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from wheelsched.cli.output import (
    Output,
    cell,
    due_columns,
    first,
    record,
    rows,
    sentence,
    show,
    shown,
    times_shown,
    watch,
)
from wheelsched.cli.shared import print_error
from wheelsched.client.problems import read_problem
from wheelsched.errors import ApiUnavailable
from wheelsched.schedule.explain import DueTime


def drawn(output: object, width: int) -> str:
    drawing = StringIO()
    console = Console(width=width, file=drawing)
    console.print(output)
    return drawing.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_table_fits_the_terminal(width: int) -> None:
    table = rows(["x" * 200], {"one": str, "two": len})
    for line in drawn(table.text, width).splitlines():
        assert len(line) <= width


@given(st.lists(st.text("ab漢字", min_size=1), min_size=1, max_size=8), st.integers(30, 200))
def test_the_widest_columns_shrink_first(cells: list[str], width: int) -> None:
    table = rows([cells], {f"{number}": itemgetter(number) for number in range(len(cells))})
    header, line = drawn(table.text, width).splitlines()
    assert cell_len(header) <= width
    assert cell_len(line) <= width
    assert header.split() == [str(number) for number in range(len(cells))]
    assert len(line.replace(" …", "…").split()) == len(cells)  # half a wide character is a space


def test_a_column_that_is_narrow_is_not_cut_for_one_that_is_wide() -> None:
    table = rows(["x" * 200], {"name": str, "state": lambda _: "active", "more": str})
    assert drawn(table.text, 40).splitlines()[1].split()[1] == "active"


def test_control_characters_and_markup_are_only_shown() -> None:
    assert cell("\x1b[31mred\x07").plain == "·[31mred·"
    assert drawn(cell("[red]a[/red]"), 80).strip() == "[red]a[/red]"


def test_control_characters_never_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(sentence(None, "paused \x1b[2Jreport"), as_json=False)
    print_error(read_problem(502, b"a proxy\nsays \x1b]0;no\x07"))
    said = capsys.readouterr()
    assert said.out == "paused ·[2Jreport\n"
    assert "a proxy\nsays ·]0;no·\n" in said.err


def test_missing_values_are_shown_as_a_dash() -> None:
    nothing: list[object] = [None, {}, []]
    assert [cell(value).plain for value in nothing] == ["–", "–", "–"]


def test_an_instant_shows_its_milliseconds_only_when_it_has_some() -> None:
    assert shown(datetime(2026, 3, 8, 9, tzinfo=UTC)) == "2026-03-08 09:00:00Z"
    assert shown(datetime(2026, 3, 8, 9, 0, 0, 7_000, tzinfo=UTC)) == "2026-03-08 09:00:00.007Z"


def test_local_times_are_shown_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        noon = datetime(2026, 3, 8, 12, tzinfo=UTC)
        with times_shown(is_local=True):
            assert cell(noon).plain == "2026-03-08 17:30:00+05:30"
        assert cell(noon).plain == "2026-03-08 12:00:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_due_times_are_shown_in_each_zone_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        noon = datetime(2026, 3, 8, 12, tzinfo=UTC)
        due = DueTime(utc=noon, local=noon.astimezone(ZoneInfo("Europe/Berlin")))

        def told(timezone: str) -> dict[str, str]:
            columns = due_columns(timezone)
            return {name: cell(column(due)).plain for name, column in columns.items()}

        berlin = {"Europe/Berlin": "2026-03-08 13:00:00+01:00"}
        assert told("UTC") == {"UTC": "2026-03-08 12:00:00Z"}
        assert told("Europe/Berlin") == {"UTC": "2026-03-08 12:00:00Z"} | berlin
        with times_shown(is_local=True):
            assert told("Europe/Berlin") == {"local": "2026-03-08 17:30:00+05:30"} | berlin
            assert told("UTC").keys() == {"local", "UTC"}
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("limit", "is_cut"), [(2, True), (3, False), (4, False), (None, False)])
def test_a_list_that_is_cut_says_so(
    capsys: pytest.CaptureFixture[str], limit: int | None, is_cut: bool
) -> None:
    items, notes = first(iter("abc"), limit)
    show(rows(items, {"name": str}, notes), as_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out) == list("abc")[:limit]
    assert ("showing the first 2; use --limit or --all to see more" in said.err) == is_cut


def test_a_list_is_watched_until_it_is_interrupted() -> None:
    """It keeps trying while the API is unavailable."""
    looks: list[Output | BaseException] = [
        *(sentence(None, "first"), ApiUnavailable("away"), sentence(None, "second")),
        KeyboardInterrupt(),
    ]

    def read() -> Output:
        look = looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        return look

    drawing = StringIO()
    watch(read, 0.001, Console(width=40, file=drawing, force_terminal=True))
    assert looks == []
    assert all(word in drawing.getvalue() for word in ("first", "away", "second"))


def test_watch_fails_if_the_first_read_fails() -> None:
    def read() -> Output:
        raise ApiUnavailable("away")

    with pytest.raises(ApiUnavailable):
        watch(read, 0.001)


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(record({"name": "a"}, {"name": "a"}), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "a"}
