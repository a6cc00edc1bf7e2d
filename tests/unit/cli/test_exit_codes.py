"""Every error has an exit code of the contract."""

import pytest

from wheelsched import errors
from wheelsched.cli.exit_codes import CODES, ExitCode, advice_for, code_of
from wheelsched.errors import WheelschedError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound(), 3),
        (errors.NameTaken(), 4),
        (errors.EditedMeanwhile(), 4),
        (errors.QuotaUsedUp(), 5),
        (errors.NotAuthenticated(), 5),
        (errors.ApiUnavailable(), 6),
        (errors.PoolExhausted(), 6),
        (errors.InvalidCron(), 2),
        (errors.InvalidRequest(), 2),
        (errors.InvalidApiToken(), 2),
        (errors.SchemaTooOld(), 1),
        (errors.AddressTaken(), 1),
    ],
)
def test_an_error_has_its_code(error: WheelschedError, code: int) -> None:
    assert code_of(error) == code


def test_no_entry_shadows_a_later_one() -> None:
    for index, (kind, _) in enumerate(CODES):
        assert not any(issubclass(kind, earlier) for earlier, _ in CODES[:index]), kind


def test_only_failures_are_in_the_table() -> None:
    assert ExitCode.OK not in {code for _, code in CODES}


def test_an_unreachable_api_gets_advice() -> None:
    assert "wheelsched up" in (advice_for(errors.ApiUnavailable()) or "")
    assert advice_for(errors.JobNotFound()) is None
