"""Refuses attempts that a later attempt of the same run has overtaken.

Invariant: for every run in the cache, no token passes that is lower than an earlier one.
"""

from collections import OrderedDict

from wheelsched.errors import AttemptOvertaken


class FencingCheck:
    """Keeps the highest token of each run, for the latest `capacity` runs.

    A shard that was frozen during a request may send it after its successor sent its own.
    Deduplication prevents a second effect; this check prevents a second start. So it comes after
    deduplication: it decides only about runs that are not done.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._highest: OrderedDict[str, int] = OrderedDict()

    def record(self, run_id: str, token: int) -> int:
        """Record the token of an attempt that arrived. Return the highest one of its run."""
        highest = self._highest
        known = highest.get(run_id)
        if known is None:
            highest[run_id] = token
            if len(highest) > self._capacity:
                highest.popitem(last=False)
            return token
        if token > known:
            highest[run_id] = known = token
        highest.move_to_end(run_id)
        return known

    def check(self, run_id: str, token: int) -> None:
        """Record the token of an attempt; raise `AttemptOvertaken` if a later one has arrived."""
        if token < self.record(run_id, token):
            raise AttemptOvertaken
