"""What is another tenant's: by whom it is signed, and what is said to who asks for it."""

import pytest
from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.quiet import JOB, TENANT, at, changed_arrival, quiet, without
from tests.checker.records import History, Trespass

FOREIGN = Trespass(verb="pause", job=JOB, tenant="another", at_us=at(25), shown="nothing")


@pytest.mark.parametrize("signer", ["another", "nobody"])
def test_a_run_is_signed_with_the_secret_of_its_tenant(signer: str) -> None:
    assert check(changed_arrival(quiet(), 30, signer=TENANT)).findings == []
    assert check(changed_arrival(quiet(), 30, signer=signer)).names == {"cross_tenant"}


def with_trespass(history: History, **fields: object) -> History:
    return replace(history, trespasses=(replace(FOREIGN, **fields),))


def test_who_asks_for_what_is_another_tenants_is_shown_nothing() -> None:
    assert check(with_trespass(quiet())).findings == []
    assert check(with_trespass(quiet(), shown="unknown")).findings == []
    (found,) = check(with_trespass(quiet(), shown="something", answer="200")).findings
    assert (found.name, found.job, found.detail) == ("cross_tenant", JOB, "pause by another: 200")


def test_what_nobody_knows_the_end_of_has_none_if_it_is_another_tenants() -> None:
    """As if it had paused the job: it is no reason that a due time is not there."""
    assert check(with_trespass(without(quiet(), 30), shown="unknown")).names == {"lost"}
