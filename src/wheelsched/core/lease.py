"""Leases: how long a shard may trust its own, and when it may take over another's.

Invariant: a shard's trust ends before any other may begin to take its lease over. All instants
here are of one process's own monotonic clock (CLOCK_BOOTTIME), never the database's or the
host's wall clock; whether a row has expired is the database's to say.

Why it holds: a renewal that is sent at instant S is executed at S or later, and sets `expires_at`
one TTL after that. A candidate needs `expires_at` to have passed *and* a whole TTL of
its own clock in which `renewals` stood still. So nobody takes over before S + TTL, while trust
ended at S + TTL − margin. The margin covers how far clocks drift apart in one TTL, and the
dispatch that is under way when trust ends.
"""

from msgspec import Struct
from msgspec.structs import replace

from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.errors import InvalidLeaseTerms


class LeaseTerms(Struct, frozen=True, kw_only=True):
    ttl_us: int = 5 * SECOND
    margin_us: int = 500 * MILLISECOND

    def __post_init__(self) -> None:
        if not 0 < self.margin_us < self.ttl_us:
            raise InvalidLeaseTerms


class Trust(Struct, frozen=True, kw_only=True):
    """How long a shard trusts its own lease. A new one trusts nothing.

    An error has no method here: a renewal that failed, or whose answer was lost, changes nothing.
    """

    until_us: int = 0
    is_lost: bool = False

    def renewed(self, sent_us: int, terms: LeaseTerms) -> "Trust":
        """After a renewal that the database confirmed and that was sent at `sent_us`.

        Answers may overtake each other, so an older one never shortens trust; and the row of a
        lost lease is gone for good, so that none revives it.
        """
        if self.is_lost:
            return self
        return Trust(until_us=max(self.until_us, sent_us + terms.ttl_us - terms.margin_us))

    def lost(self) -> "Trust":
        """After the database said that the row is gone."""
        return Trust(until_us=0, is_lost=True)

    def holds_at(self, now_us: int) -> bool:
        """Whether the shard may arm and fire."""
        return now_us < self.until_us

    def left_us(self, now_us: int) -> int:
        """How long trust still holds; 0 when it does not."""
        return max(self.until_us - now_us, 0)


class Look(Struct, frozen=True, kw_only=True):
    """One look at another shard's row, with the instants around the query."""

    renewals: int
    is_expired: bool  # `expires_at < clock_timestamp()`, inside SQL
    sent_us: int
    received_us: int


class Watch(Struct, frozen=True, kw_only=True):
    """What a candidate has seen of another shard's lease, look by look.

    The statement that takes over repeats both conditions, with the `renewals` seen here: a watch
    tells when to try, and the database decides.
    """

    latest: Look
    still_since_us: int

    @staticmethod
    def begin(look: Look) -> "Watch":
        # From the answer on: the row was read at some instant before it came.
        return Watch(latest=look, still_since_us=look.received_us)

    def after(self, look: Look, terms: LeaseTerms) -> "Watch":
        """After a further look.

        A candidate that saw nothing for a whole TTL begins again: the database was away, or it
        was itself frozen, and the others deserve the time to renew.
        """
        has_renewed = look.renewals != self.latest.renewals
        was_blind = look.sent_us - self.latest.received_us > terms.ttl_us
        if has_renewed or was_blind:
            return Watch.begin(look)
        return replace(self, latest=look)

    def may_take_over(self, terms: LeaseTerms) -> bool:
        """Whether the lease has expired and stood still for one TTL of the candidate's clock."""
        # Up to the sending of the latest look: the row was read at some instant after it.
        still_us = self.latest.sent_us - self.still_since_us
        return self.latest.is_expired and still_us >= terms.ttl_us
