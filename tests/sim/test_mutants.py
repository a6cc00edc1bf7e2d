"""The checker against a product that is broken: each mutant has to be caught, and by its name."""

import pytest
import tests.sim.mutants_of_calls
import tests.sim.mutants_of_drafts
import tests.sim.mutants_of_ends
import tests.sim.mutants_of_failovers
import tests.sim.mutants_of_queues  # noqa: F401 - each adds its own
from tests.marks import first_cases
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
    "retried_again_by_a_request_that_is_sent_again",
    "trust_kept_after_a_lost_connection",
    "gone_at_the_first_look",
    "gone_without_having_been_seen",
    "lifetime_of_the_server_ignored",
    "epoch_from_the_table_alone",
    "no_check_of_renewals",
    "partitions_that_are_not_ours_are_kept",
    "handed_out_again_when_a_link_is_lost",
    "credits_that_are_not_used_up",
    "recall_that_loses_credits",
    "finish_that_is_told_before_it_is_written",
    "give_back_that_is_forgotten",
    "claim_within_that_is_ignored",
    "delivery_lease_ignored_by_the_next_owner",
    "queues_of_tenants_mixed_up",
}


def test_each_way_that_the_design_warns_of_has_its_mutant() -> None:
    assert {mutant.name for mutant in MUTANTS} > NAMED


@pytest.mark.parametrize("mutant", first_cases(2, MUTANTS), ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant: Mutant) -> None:
    seen: set[str] = set()
    for seed in range(SEEDS):
        seen |= judge_mutant(seed, mutant).names
        if seen & mutant.caught_as:
            return
    pytest.fail(f"{mutant.name} passed {SEEDS} seeds, and was seen as {seen or 'nothing'} only")


@pytest.mark.proof
def test_the_fence_stops_the_claims_by_which_its_mutants_are_caught() -> None:
    for seed in range(5):
        assert "armed_after_release" not in judge_mutant(seed, SLOW_CLAIMS).names
