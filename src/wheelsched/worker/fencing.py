"""The fence on the worker's side: an attempt that was overtaken does nothing.

Invariant: of the runs it remembers, no token is let through that is lower than one before it.
"""

from collections import OrderedDict

from wheelsched.errors import AttemptOvertaken


class FencingCheck:
    """The highest token of each run, for the latest `capacity` of them.

    A shard that was frozen in the middle of a request may send it after its successor has sent
    its own. Deduplication keeps that from taking effect twice; this keeps it from starting.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._highest: OrderedDict[str, int] = OrderedDict()

    def check(self, run_id: str, token: int) -> None:
        """Lets the token of an attempt through, or raises `AttemptOvertaken`."""
        highest = self._highest.get(run_id)
        if highest is not None and token < highest:
            raise AttemptOvertaken
        self._highest[run_id] = token
        self._highest.move_to_end(run_id)
        if len(self._highest) > self._capacity:
            self._highest.popitem(last=False)
