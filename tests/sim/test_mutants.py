"""The checker against a product that is broken: each mutant has to be caught, and by its name."""

import pytest
import tests.sim.mutants_of_drafts
import tests.sim.mutants_of_ends  # noqa: F401 - each adds its own
from tests.sim.mutants import MUTANTS, SLOW_CLAIMS, Mutant
from tests.sim.seeds import judge_mutant

SEEDS = 25  # within which a mutant has to be caught


NAMED = {
    "no_fence",
    "plain_exists_instead_of_a_lock",
    "next_from_now",
    "no_token_on_settle",
    "trust_never_expires",
    "sweep_forgets",
    "hints_without_freshness",
    "misfire_dropped_silently",
    "planned_from_now",
}


def test_each_way_that_the_design_warns_of_has_its_mutant() -> None:
    assert {mutant.name for mutant in MUTANTS} > NAMED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant) -> None:
    seen: set[str] = set()
    for seed in range(SEEDS):
        seen |= judge_mutant(seed, mutant).names
        if seen & mutant.caught_as:
            return
    pytest.fail(f"{mutant.name} passed {SEEDS} seeds, and was seen as {seen or 'nothing'} only")


def test_the_fence_stops_the_claims_by_which_its_mutants_are_caught() -> None:
    for seed in range(5):
        assert "armed_after_tenure" not in judge_mutant(seed, SLOW_CLAIMS).names
