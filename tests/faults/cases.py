"""Scenarios as cases of a test: the short ones in `make proof`, all of them in `make test-long`.

A test fails by what is broken, never by what is slow: how fast the machine is, is not its matter.
"""

from collections.abc import Iterable

import pytest
from tests.faults.experiment import Scenario, run_experiment
from tests.faults.server import Server


def cases(scenarios: Iterable[Scenario], smoke: str = "") -> pytest.MarkDecorator:
    """The scenarios; the one that is named as `smoke` is in `make test` too."""
    return pytest.mark.parametrize(
        "scenario",
        [
            pytest.param(
                scenario,
                id=scenario.name,
                marks=[
                    pytest.mark.timeout(scenario.limit_s + 60),
                    pytest.mark.proof if scenario.is_short else pytest.mark.long,
                    *((pytest.mark.smoke,) if scenario.name == smoke else ()),
                ],
            )
            for scenario in scenarios
        ],
    )


async def hold(scenario: Scenario, server: Server, seed: int = 0) -> None:
    """Runs a scenario, and fails if a promise is broken."""
    verdict = await run_experiment(scenario, server, seed)
    print(verdict.word, *verdict.slow, *verdict.remarks)
    assert not verdict.broken, "\n".join(verdict.broken)
