"""Reports: what fire and sweep hand to settle.

Invariant: each carries the token under which it was made: settle writes nothing under another.
"""

from collections.abc import Sequence

import structlog
from msgspec import Struct

from wheelsched.core.model import Run, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Outcome
from wheelsched.logs import about_run
from wheelsched.shard.armed import ArmedRun

log = structlog.get_logger("wheelsched.shard")

UNPREPARED = "its request could not be made from the definition of its job"


class Report(Struct, eq=False, kw_only=True, gc=False):
    """What attempts came back with that went out together: at one moment, for one time, and all
    of them the first of their runs or none."""

    runs: Sequence[ArmedRun]
    outcome: Outcome
    finished_us: int

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def keys(self) -> list[RunKey]:
        return [run.key for run in self.runs]

    @property
    def lateness_us(self) -> int | None:
        """Of first attempts: how long after their time they went to the socket."""
        run = self.runs[0]
        if run.started_us is None or not run.is_first:
            return None
        return max(run.started_us - run.fire_at_us, 0)


class Ruling(Struct, eq=False, kw_only=True, gc=False):
    """What was decided about a run without an attempt: it is skipped, cancelled, or dead."""

    key: RunKey
    token: int
    state: RunState
    skip_reason: SkipReason | None = None
    error: str | None = None
    decided_us: int = 0  # when settle was told

    def __len__(self) -> int:
        return 1

    @property
    def keys(self) -> list[RunKey]:
        return [self.key]


def buried(run: Run, *, may_be_carried: bool = False) -> Ruling:
    """The end of a run whose job is gone: nobody sends it now.

    One that is written as carried by now counts as sent, and is not skipped any more.
    """
    assert run.token is not None
    is_unsent = run.state is RunState.ARMED and run.attempt == 0 and not may_be_carried
    return Ruling(
        key=run.key,
        token=run.token,
        state=RunState.SKIPPED if is_unsent else RunState.CANCELLED,
        skip_reason=SkipReason.DELETED if is_unsent else None,
    )


def unprepared(key: RunKey, token: int) -> Ruling:
    """The end of a run whose request cannot be made, in the handler of what was raised."""
    log.exception("run.unprepared", **about_run(key, token))
    return Ruling(key=key, token=token, state=RunState.DEAD, error=UNPREPARED)
