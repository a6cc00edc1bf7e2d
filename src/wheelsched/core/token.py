"""Fencing tokens: (epoch << 32 | counter), one bigint that grows across every failover.

Invariant: of two tokens of one partition the one issued later is greater. Within an epoch the
counter grows; across epochs the epoch does, and one owner has each epoch.
"""

from typing import Final, NamedTuple

from wheelsched.errors import EpochOutOfRange, TokenCounterExhausted, TokenOutOfRange

COUNTER_BITS: Final = 32
MAX_COUNTER: Final = (1 << COUNTER_BITS) - 1
MAX_EPOCH: Final = (1 << 31) - 1  # a bigint is signed: 31 + 32 bits are left
MAX_TOKEN: Final = MAX_EPOCH << COUNTER_BITS | MAX_COUNTER


class TokenParts(NamedTuple):
    epoch: int
    counter: int

    def __str__(self) -> str:
        """As logs show it: 7:42."""
        return f"{self.epoch}:{self.counter}"


def first_token(epoch: int) -> int:
    """The first token of an owner. Epoch 0 is that of a partition which never had one."""
    if not 1 <= epoch <= MAX_EPOCH:
        raise EpochOutOfRange(f"epoch {epoch} does not lie between 1 and {MAX_EPOCH}")
    return epoch << COUNTER_BITS


def next_token(token: int) -> int:
    """The token after `token`, in the same epoch."""
    if split_token(token).counter == MAX_COUNTER:
        raise TokenCounterExhausted
    return token + 1


def split_token(token: int) -> TokenParts:
    """The epoch and the counter of a token."""
    if not 0 <= token <= MAX_TOKEN:
        raise TokenOutOfRange(f"token {token} does not lie between 0 and {MAX_TOKEN}")
    return TokenParts(token >> COUNTER_BITS, token & MAX_COUNTER)
