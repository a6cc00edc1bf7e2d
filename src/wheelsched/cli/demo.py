"""`demo`: everything at once on a throw-away database, with a shard killed in the middle.

Invariant: it ends with 0 only if nothing was lost.
"""

from typing import Annotated, Self

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from wheelsched.cli.commands import JsonOption
from wheelsched.cli.demonstration.performance import perform
from wheelsched.cli.demonstration.report import data_of, text_of
from wheelsched.cli.demonstration.scenario import Scenario
from wheelsched.cli.exits import ExitCode
from wheelsched.cli.output import Output, err, show


class Watching:
    """Progress on stderr: a bar on a terminal, a line for each step elsewhere."""

    def __init__(self) -> None:
        self._console = err()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._current: TaskID | None = None
        self._total = 1

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int | None = None) -> None:
        if not self._console.is_terminal:
            self._console.print(what)
        if self._current is not None:
            self._progress.update(self._current, total=self._total, completed=self._total)
        self._total = total or 1  # a step of which nobody knows how long it takes is one
        self._current = self._progress.add_task(what, total=total)

    def advance(self, done: int) -> None:
        if self._current is not None:
            self._progress.update(self._current, completed=done)


def demo(
    jobs: Annotated[int, typer.Option(min=1, help="How many are due at one instant.")] = 20_000,
    single: Annotated[
        int, typer.Option(min=0, help="So many of them in requests of their own.")
    ] = 1_000,
    recurring: Annotated[int, typer.Option(min=1, help="Jobs that are due every second.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """Run a hot second on a throw-away database, kill a shard in the middle, and show what came."""
    scenario = Scenario(one_offs=jobs, single=min(single, jobs), recurring=recurring)
    present(scenario, as_json=as_json)


def present(scenario: Scenario, *, as_json: bool) -> None:
    """Performs a scenario before a user, and ends badly if something was lost."""
    with Watching() as audience:
        evidence = perform(scenario, audience)
    show(Output(data_of(evidence), text_of(evidence)), as_json=as_json)
    if evidence.lost:
        raise typer.Exit(ExitCode.FAILED)
