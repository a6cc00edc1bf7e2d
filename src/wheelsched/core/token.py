"""Fencing tokens: (epoch << 32 | counter), one bigint that grows across every failover.

Invariant: of two tokens of one partition, the one issued later is greater. The counter grows within
an epoch, the epoch grows with each new owner, and each epoch has one owner. An epoch is at least
the seconds since `EPOCHS_BEGIN_US`: it also grows if the database forgets the last ones.
"""

from typing import Final, NamedTuple

from wheelsched.errors import EpochOutOfRange, TokenCounterExhausted, TokenOutOfRange
from wheelsched.values.duration import SECOND

COUNTER_BITS: Final = 32
MAX_COUNTER: Final = (1 << COUNTER_BITS) - 1
MAX_EPOCH: Final = (1 << 31) - 1  # a bigint is signed: 31 + 32 bits are left
EPOCHS_BEGIN_US: Final = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z; 31 bits last for 68 years
MAX_TOKEN: Final = MAX_EPOCH << COUNTER_BITS | MAX_COUNTER


class TokenParts(NamedTuple):
    epoch: int
    counter: int

    def __str__(self) -> str:
        """The form in logs: 7:42."""
        return f"{self.epoch}:{self.counter}"


def next_epoch(last: int, known: int, now_us: int) -> int:
    """The epoch of a new owner, after the last one in the table and the last one it knows of."""
    return max(last + 1, known + 1, (now_us - EPOCHS_BEGIN_US) // SECOND)


def first_token(epoch: int) -> int:
    """The first token of an owner. Epoch 0 means that a partition never had an owner."""
    if not 1 <= epoch <= MAX_EPOCH:
        raise EpochOutOfRange(f"epoch {epoch} is out of range; expected 1 to {MAX_EPOCH}")
    return epoch << COUNTER_BITS


def next_token(token: int) -> int:
    """The token after `token`, in the same epoch."""
    if split_token(token).counter == MAX_COUNTER:
        raise TokenCounterExhausted
    return token + 1


def split_token(token: int) -> TokenParts:
    """The epoch and the counter of a token."""
    if not 0 <= token <= MAX_TOKEN:
        raise TokenOutOfRange(f"token {token} is out of range; expected 0 to {MAX_TOKEN}")
    return TokenParts(token >> COUNTER_BITS, token & MAX_COUNTER)
