"""The diagrams in docs/LIFE_OF_A_RUN.md have the transitions of `core/state.py`, and no others."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from wheelsched.core.state import JOB_MOVES, RUN_MOVES

PAGE = Path(__file__).parents[3] / "docs" / "LIFE_OF_A_RUN.md"
DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"(\S+) --> (\S+): (.+)")

Arrow = tuple[str, str, str]  # from, to, event


def drawn(diagram: str) -> list[Arrow]:
    arrows = [ARROW.fullmatch(line.strip()) for line in diagram.splitlines()]
    assert None not in arrows
    return [
        (arrow[1], arrow[2], event)
        for arrow in arrows
        if arrow is not None
        for event in arrow[3].split(", ")
    ]


def tabled(moves: Mapping[tuple[StrEnum | None, StrEnum], StrEnum | None]) -> list[Arrow]:
    return [(state or "[*]", after or "[*]", event) for (state, event), after in moves.items()]


@pytest.mark.parametrize(("place", "moves"), [(0, RUN_MOVES), (1, JOB_MOVES)], ids=["run", "job"])
def test_a_diagram_has_the_transitions_of_its_table(
    place: int, moves: Mapping[tuple[StrEnum | None, StrEnum], StrEnum | None]
) -> None:
    diagrams = DIAGRAM.findall(PAGE.read_text())
    assert len(diagrams) == 2
    assert sorted(drawn(diagrams[place])) == sorted(tabled(moves))
