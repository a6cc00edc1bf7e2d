"""Fire: whether a run whose time has come goes out, waits for its turn, or is skipped.

Invariant: every run that is cleared is live from then on. One that finds others of its job
unfinished is decided about by `overlap`, and again when one of them has ended; one that was held
back past its grace by its misfire policy. What is decided without an attempt is settled at once.
"""

from collections.abc import Callable, Iterable
from uuid import UUID

from wheelsched.core import overlap
from wheelsched.core.model import Lane, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.partition import partition_of
from wheelsched.core.policy import OnMisfire
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.reports import Ruling


class Clearance:
    """Decides about runs that are due."""

    def __init__(self, context: Context, settle: Callable[[Ruling], None]) -> None:
        self._context = context
        self._settle = settle

    def clear(self, runs: Iterable[ArmedRun], now_us: int) -> list[ArmedRun]:
        """Those of the runs that go out now."""
        begin_alone, decide = self._context.unfinished.begin_alone, self._decide
        return [
            run
            for run in runs
            if (_is_in_grace(run, now_us) and begin_alone(run)) or decide(run, now_us)
        ]

    def _decide(self, run: ArmedRun, now_us: int, *, has_waited: bool = False) -> bool:
        """Whether a run goes out now. If not, it waits for its turn, or is skipped.

        One that is past its grace overtakes nobody; but in the line of its job it keeps its place.
        """
        unfinished = self._context.unfinished
        is_late = run.is_first and not _is_in_grace(run, now_us)
        if is_late and self._is_misfire(run):
            self._skip(run, SkipReason.MISFIRE_SKIP)
            return False
        if is_late and not has_waited:
            run.lane = Lane.LATE
        if not run.is_first or unfinished.is_idle(run.key.job_id):
            unfinished.begin(run)
            return True
        decision = overlap.decide(
            run.rules.overlap,
            trigger=run.trigger,
            lane=run.lane,
            live=unfinished.live_keys(run.key.job_id),
            ahead=unfinished.waiting_ahead_of(run),
        )
        match decision:
            case overlap.Fire():
                for key in decision.cancel:
                    self._cancel(key)
                unfinished.begin(run)
                return True
            case overlap.Queue():
                unfinished.wait(run)
                return False
            case overlap.Skip():
                self._skip(run, decision.reason)
                return False

    def call_up(self, job_id: UUID) -> list[ArmedRun]:
        """Of the runs of a job that wait for their turn, those that go out now.

        The first one that has to wait on ends the look: so do those behind it.
        """
        unfinished = self._context.unfinished
        now_us = self._context.clock.now_us()
        ready = []
        while (run := unfinished.first_waiting(job_id)) is not None:
            unfinished.take_waiting(run)
            if self._decide(run, now_us, has_waited=True):
                ready.append(run)
                if not _is_in_grace(run, now_us):
                    run.lane = Lane.LATE
            elif unfinished.first_waiting(job_id) is run:
                break
        return ready

    def _is_misfire(self, run: ArmedRun) -> bool:
        """Whether a run that is past its grace is skipped for it, by its policy."""
        if run.lane is Lane.LATE:
            return False
        if not self._context.tenure.holds(partition_of(run.key.job_id)):
            return False  # carried over a hand-over: it is sent, whatever happens
        is_scheduled = run.trigger is Trigger.SCHEDULE
        return is_scheduled and run.rules.misfire.policy is OnMisfire.SKIP

    def _skip(self, run: ArmedRun, reason: SkipReason) -> None:
        self._context.unfinished.disarm(run)
        self._settle(
            Ruling(key=run.key, token=run.token, state=RunState.SKIPPED, skip_reason=reason)
        )

    def _cancel(self, key: RunKey) -> None:
        """Ends a live run in favour of a later one. What its worker still says is not heard, and
        its next attempt, which may be claimed already, is not sent."""
        unfinished = self._context.unfinished
        live = unfinished.find(key)
        assert live is not None
        token = live.token
        if live.armed is not None:
            live.armed.is_withdrawn = True
        if (armed := unfinished.find_armed(key)) is not None:
            unfinished.forget([armed])
            token = armed.token
        unfinished.end(key, live.token)
        self._settle(Ruling(key=key, token=token, state=RunState.CANCELLED))


def _is_in_grace(run: ArmedRun, now_us: int) -> bool:
    return now_us - run.fire_at_us <= run.rules.misfire.grace_us
