"""`demo`: the whole stack on a throw-away database, with a shard killed in the middle.

Invariant: it exits with 0 only if no run was lost.
"""

from typing import Annotated, Self

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from wheelsched.cli.demonstration.report import data_of, text_of
from wheelsched.cli.demonstration.runner import run_scenario
from wheelsched.cli.demonstration.scenario import Scenario
from wheelsched.cli.exit_codes import ExitCode
from wheelsched.cli.output import Output, err, show
from wheelsched.cli.shared import JsonOption


class ProgressDisplay:
    """Progress on stderr: a bar on a terminal, otherwise one line per step."""

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
        self._total = total or 1  # a step of unknown length counts as one
        self._current = self._progress.add_task(what, total=total)

    def advance(self, done: int) -> None:
        if self._current is not None:
            self._progress.update(self._current, completed=done)


def demo(
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of one-offs due at one instant.")
    ] = 20_000,
    single: Annotated[
        int, typer.Option(min=0, help="How many of them are sent in single requests.")
    ] = 1_000,
    recurring: Annotated[int, typer.Option(min=1, help="Number of jobs due every second.")] = 300,
    as_json: JsonOption = False,
) -> None:
    """Run a hot second on a throw-away database, kill a shard in the middle, and show the
    results."""
    scenario = Scenario(one_offs=jobs, single=min(single, jobs), recurring=recurring)
    present(scenario, as_json=as_json)


def present(scenario: Scenario, *, as_json: bool) -> None:
    """Runs a scenario with progress, prints its results, and fails if a run was lost."""
    with ProgressDisplay() as progress:
        evidence = run_scenario(scenario, progress)
    show(Output(data_of(evidence), text_of(evidence)), as_json=as_json)
    if evidence.lost:
        raise typer.Exit(ExitCode.FAILED)
