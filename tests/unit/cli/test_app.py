"""Options that commands have in common."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from wheelsched.cli.app import app


def lists(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that prints a list with times."""
    if hasattr(command, "list_commands"):
        context = command.make_context(path, ["--help"], resilient_parsing=True)
        for name in command.list_commands(context):
            yield from lists(command.get_command(context, name), f"{path} {name}".strip())
    if path.endswith(" list") or path == "shards":
        yield path, command


LISTS = dict(lists(typer.main.get_command(app)))


@pytest.mark.parametrize("path", LISTS)
def test_every_list_shows_local_times_on_request(path: str) -> None:
    assert "--local" in {option for each in LISTS[path].params for option in each.opts}


def test_all_lists_are_found() -> None:
    assert {"job list", "run list", "dead list", "tenant list", "token list"} < LISTS.keys()
