"""Decides how long a shard may trust its own lease, and when it may take over another's.

Invariant: a shard stops trusting its lease before any other shard may take it over. All instants
here are of the process's own monotonic clock (CLOCK_BOOTTIME), never of the database's or the
host's wall clock. The database decides whether a row has expired.

Why it holds: a renewal sent at instant S is executed at S or later, and sets `expires_at` one TTL
after that. A candidate may take over only when `expires_at` has passed *and* `renewals` has not
changed for a whole TTL of the candidate's own clock. So no takeover happens before S + TTL, while
trust ends at S + TTL − margin. The margin covers the drift between clocks during one TTL, and the
dispatch that is in flight when trust ends.

A candidate need not wait for the lease to expire if the server process behind the lease connection
of the other shard has ended. A shard does not trust its lease after the end of that connection,
until it has renewed over a new one. ADR 26 says why that makes no two owners.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wheelsched.errors import InvalidLeaseTerms
from wheelsched.values.duration import MILLISECOND, SECOND

# For how long a backend must be seen to be gone. Meanwhile its shard learns of the end of its
# connection, and renews over a new one.
GONE_US: Final = 500 * MILLISECOND
BLIND_US: Final = SECOND  # without a look for this long, the time begins anew


class Backend(Struct, frozen=True):
    """The server process behind the lease connection of a shard."""

    pid: int
    started_us: int | None  # None where the server hides it
    server_started_us: int  # the lifetime of the server: pids of another one say nothing


class LeaseTerms(Struct, frozen=True, kw_only=True):
    ttl_us: int = 5 * SECOND
    margin_us: int = 500 * MILLISECOND

    def __post_init__(self) -> None:
        if not 0 < self.margin_us < self.ttl_us:
            raise InvalidLeaseTerms


class Trust(Struct, frozen=True, kw_only=True):
    """How long a shard trusts its own lease. Initially it does not.

    There is no method for errors: a renewal that failed, or whose response was lost, changes
    nothing.
    """

    until_us: int = 0
    is_lost: bool = False

    def renewed(self, sent_us: int, terms: LeaseTerms) -> "Trust":
        """The trust after the database confirmed a renewal that was sent at `sent_us`.

        Responses may arrive out of order, so an older one never shortens trust. The row of a lost
        lease is gone forever, so no renewal restores its trust.
        """
        if self.is_lost:
            return self
        return Trust(until_us=max(self.until_us, sent_us + terms.ttl_us - terms.margin_us))

    def lost(self) -> "Trust":
        """The trust after the database reported that the row is gone."""
        return Trust(until_us=0, is_lost=True)

    def holds_at(self, now_us: int) -> bool:
        """Whether the shard may arm and fire."""
        return now_us < self.until_us

    def left_us(self, now_us: int) -> int:
        """The remaining time of trust; 0 if it has ended."""
        return max(self.until_us - now_us, 0)


class Observation(Struct, frozen=True, kw_only=True):
    """One reading of another shard's lease row, with the instants around the query."""

    renewals: int
    is_expired: bool  # `expires_at < clock_timestamp()`, inside SQL
    sent_us: int
    received_us: int


class LeaseWatch(Struct, frozen=True, kw_only=True):
    """A candidate's observations of another shard's lease.

    The takeover statement repeats both conditions with the `renewals` observed here: a watch says
    when to try, and the database decides.
    """

    latest: Observation
    still_since_us: int

    @staticmethod
    def begin(observation: Observation) -> "LeaseWatch":
        # Count from the response: the row was read at some instant before it arrived.
        return LeaseWatch(latest=observation, still_since_us=observation.received_us)

    def after(self, observation: Observation, terms: LeaseTerms) -> "LeaseWatch":
        """The watch after another observation.

        A candidate without an observation for a whole TTL starts over. The database was
        unreachable, or the candidate itself was frozen, and the other shards need time to renew.
        """
        has_renewed = observation.renewals != self.latest.renewals
        was_blind = observation.sent_us - self.latest.received_us > terms.ttl_us
        if has_renewed or was_blind:
            return LeaseWatch.begin(observation)
        return replace(self, latest=observation)

    def may_take_over(self, terms: LeaseTerms) -> bool:
        """Whether the lease has expired and did not change for one TTL of the candidate's clock."""
        # Count up to the latest query: the row was read at some instant after it was sent.
        still_us = self.latest.sent_us - self.still_since_us
        return self.latest.is_expired and still_us >= terms.ttl_us


class BackendLook(Struct, frozen=True, kw_only=True):
    """One look at the backend of another shard, with the instants around the query."""

    backend: Backend
    renewals: int
    is_alive: bool
    sent_us: int
    received_us: int


class BackendWatch(Struct, frozen=True, kw_only=True):
    """An observer's looks at the backend of another shard.

    A backend that is gone counts only if this observer has seen it alive. The takeover statement
    repeats that it is gone and still published.
    """

    latest: BackendLook
    was_alive: bool
    gone_since_us: int

    @staticmethod
    def begin(look: BackendLook) -> "BackendWatch":
        return BackendWatch(latest=look, was_alive=look.is_alive, gone_since_us=look.received_us)

    def after(self, look: BackendLook) -> "BackendWatch":
        """The watch after another look. A shard that renews over a new connection begins anew."""
        latest = self.latest
        if look.backend != latest.backend:
            return BackendWatch.begin(look)
        has_renewed = look.renewals != latest.renewals
        was_blind = look.sent_us - latest.received_us > BLIND_US
        if look.is_alive or latest.is_alive or has_renewed or was_blind:
            was_alive = self.was_alive or look.is_alive
            return replace(BackendWatch.begin(look), was_alive=was_alive)
        return replace(self, latest=look)

    def gone_left_us(self) -> int | None:
        """How much longer it must be gone before a takeover; None if it does not count as gone."""
        if self.latest.is_alive or not self.was_alive:
            return None
        return max(GONE_US - (self.latest.sent_us - self.gone_since_us), 0)


def is_from_the_past(renewals: int, fence: int, known_renewals: int, known_fence: int) -> bool:
    """Whether a confirmed renewal contradicts what was confirmed before it was sent.

    Only going back in time makes a database forget a renewal or a raised fence.
    """
    return renewals <= known_renewals or fence < known_fence
