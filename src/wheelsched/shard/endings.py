"""Under settle: what a report makes of its runs.

Invariant: runs that came back together with the same have one ending between them, unless each is
tried again by its own policy.
"""

from collections.abc import Iterable
from random import Random
from uuid import UUID

from wheelsched.core import settlement
from wheelsched.core.model import RunState
from wheelsched.core.outcome import Failed, told
from wheelsched.core.state import JobEvent, move_run
from wheelsched.ports import Ending, Settled
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.reports import Report, Ruling


def end_ruled(ruling: Ruling) -> Settled:
    """What is written of a run that ends without an attempt."""
    ending = Ending(
        state=ruling.state,
        finished_at_us=ruling.decided_us,
        skip_reason=ruling.skip_reason,
        error=ruling.error,
    )
    return Settled(ruling.key, ruling.token, ending)


def end_attempts(report: Report, now_us: int, random: Random) -> list[Settled]:
    """What is written of each run of a report."""
    runs = report.runs
    if isinstance(report.outcome, Failed):  # each has its own policy, and its own luck
        endings = [_end(report, run, now_us, random) for run in runs]
    else:
        endings = [_end(report, runs[0], now_us, random)] * len(runs)
    return [Settled(run.key, run.token, ending) for run, ending in zip(runs, endings, strict=True)]


def gone_jobs(reports: Iterable[Report | Ruling]) -> dict[UUID, int]:
    """The jobs whose worker wants no more of them, with the version that was sent."""
    return {
        run.key.job_id: run.version
        for report in reports
        if isinstance(report, Report) and settlement.job_event(report.outcome) is JobEvent.GONE
        for run in report.runs
    }


def _end(report: Report, run: ArmedRun, now_us: int, random: Random) -> Ending:
    decided = settlement.decide(
        run.rules.retry, report.outcome, attempt=run.attempt, now_us=now_us, random=random
    )
    http_status, error = told(report.outcome)
    return Ending(
        state=move_run(RunState.ARMED, decided.event),
        started_at_us=run.started_us,
        finished_at_us=report.finished_us,
        lateness_us=report.lateness_us,
        http_status=http_status,
        error=error,
        retry_at_us=decided.retry_at_us,
    )
