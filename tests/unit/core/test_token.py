import pytest

from wheelsched.core.token import (
    MAX_COUNTER,
    MAX_EPOCH,
    MAX_TOKEN,
    first_token,
    next_token,
    split_token,
)
from wheelsched.errors import EpochOutOfRange, TokenCounterExhausted, TokenOutOfRange


def test_a_token_is_the_epoch_above_the_counter() -> None:
    assert first_token(7) == 7 << 32
    assert next_token(first_token(7)) == (7 << 32) + 1


def test_a_token_is_split_for_display() -> None:
    parts = split_token((7 << 32) + 42)
    assert parts == (7, 42)
    assert str(parts) == "7:42"


@pytest.mark.parametrize("epoch", [-1, 0, MAX_EPOCH + 1])
def test_an_epoch_counts_from_one_and_fits(epoch: int) -> None:
    with pytest.raises(EpochOutOfRange):
        first_token(epoch)


def test_the_greatest_token_fits_a_signed_bigint() -> None:
    assert first_token(MAX_EPOCH) + MAX_COUNTER == MAX_TOKEN == 2**63 - 1


def test_a_counter_never_runs_into_the_next_epoch() -> None:
    with pytest.raises(TokenCounterExhausted):
        next_token(first_token(7) + MAX_COUNTER)


@pytest.mark.parametrize("token", [-1, MAX_TOKEN + 1])
def test_a_token_must_be_a_bigint(token: int) -> None:
    with pytest.raises(TokenOutOfRange):
        split_token(token)
