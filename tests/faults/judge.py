"""The judge of an experiment: what the checker found, what the scenario saw, and how long it took.

Invariant: one broken promise of safety makes a verdict *broken*, whatever the machine was doing. A
promise about time makes it *slow*: on a machine that has other things to do, that is no proof.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from tests.checker.check import check
from tests.checker.records import Fault, History

SECOND_US = 1_000_000
ABOUT_TIME = ("late", "too_late")
TAKEOVER_P99_US = 8 * SECOND_US
TAKEOVER_MAX_US = 15 * SECOND_US
RETURN_US = 3 * SECOND_US
EVERY_SECOND = "* * * * * *"


class Observation(Struct, frozen=True, kw_only=True):
    """What happened, and what the scenario has seen by itself."""

    history: History
    broken: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    returns_us: tuple[int, ...] = ()  # when Postgres was back
    is_faultless: bool = False  # nothing was broken: a machine that stalls explains no duplicate


class Verdict(Struct, frozen=True, kw_only=True):
    """The outcome of one experiment, as the table shows it."""

    name: str
    runs: int = 0
    arrivals: int = 0
    found: Counter[str] = Counter()
    explained: Counter[str] = Counter()  # duplicates, by the fault that explains them
    takeovers_us: tuple[int, ...] = ()
    lateness_us: tuple[int, ...] = ()
    returns_us: tuple[int, ...] = ()
    broken: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    is_available: bool = True

    @property
    def word(self) -> str:
        if not self.is_available:
            return "not available here"
        if self.broken:
            return "BROKEN"
        return "slow" if self.slow else "kept"


def judge(name: str, seen: Observation) -> Verdict:
    """The verdict about what happened."""
    history = seen.history
    report = check(history)
    found = Counter(finding.name for finding in report.findings)
    broken = [
        f"{finding.name} {finding.job} {finding.due_us} {finding.detail}"
        for finding in report.findings
        if finding.name not in ABOUT_TIME
    ]
    if seen.is_faultless and report.duplicates:
        broken.append(f"duplicated with no fault: {dict(report.duplicates)}")
    if not history.arrivals:
        broken.append("nothing arrived at all")
    slow = [f"{name} × {count}" for name, count in found.items() if name in ABOUT_TIME]
    takeovers_us = sorted(measure_takeovers(history))
    returns_us = tuple(measure_returns(history, seen.returns_us))
    if len(returns_us) < len(seen.returns_us):
        broken.append("nothing was fired any more when Postgres was back")
    if quantile(takeovers_us, 0.99) > TAKEOVER_P99_US:
        slow.append("takeover p99 over 8 s")
    if quantile(takeovers_us, 1) > TAKEOVER_MAX_US:
        slow.append("takeover over 15 s")
    if max(returns_us, default=0) > RETURN_US:
        slow.append("firing later than 3 s after Postgres was back")
    return Verdict(
        name=name,
        runs=report.runs,
        arrivals=len(history.arrivals),
        found=found,
        explained=report.duplicates,
        takeovers_us=tuple(takeovers_us),
        lateness_us=tuple(sorted(report.lateness_us)),
        returns_us=returns_us,
        broken=(*seen.broken, *broken),
        slow=tuple(slow),
        remarks=seen.remarks,
    )


def unavailable(name: str, reason: str) -> Verdict:
    return Verdict(name=name, remarks=(reason,), is_available=False)


def measure_takeovers(history: History) -> Iterable[int]:
    """From the end of a shard to the next fire of each of its jobs that is due every second."""
    busy = {
        request.job
        for request in history.requests
        if request.definition is not None and request.definition.schedule.cron == EVERY_SECOND
    }
    touched = {
        request.job for request in history.requests if request.verb not in ("create", "edit")
    }
    partitions = {job.job: job.partition for job in history.jobs if job.job in busy - touched}
    for fault, epochs in _taken_over(history):
        fired: dict[str, int] = {}
        for arrival in history.arrivals:
            epoch = epochs.get(partitions.get(arrival.job, -1))
            if epoch is not None and arrival.token >> 32 > epoch and arrival.at_us > fault.from_us:
                fired[arrival.job] = min(arrival.at_us, fired.get(arrival.job, arrival.at_us))
        yield from (at_us - fault.from_us for at_us in fired.values())


def _taken_over(history: History) -> Iterable[tuple[Fault, dict[int, int]]]:
    """The faults that ended in a takeover: which partitions, and their epochs until then.

    The last fault of a shard before it was taken over is the cause: it had survived the others.
    """
    causes: dict[Fault, dict[int, int]] = {}
    for tenure in history.tenures:
        if tenure.ended != "taken_over" or tenure.until_us is None:
            continue
        faults = [
            fault
            for fault in history.faults
            if fault.kind in ("crash", "freeze")
            and fault.shard == tenure.shard
            and fault.from_us < tenure.until_us
        ]
        if faults:
            cause = max(faults, key=lambda fault: fault.from_us)
            causes.setdefault(cause, {})[tenure.partition] = tenure.epoch
    return causes.items()


def measure_returns(history: History, returns_us: Iterable[int]) -> Iterable[int]:
    """From each return of Postgres to the first callback."""
    for back_us in returns_us:
        after = [arrival.at_us for arrival in history.arrivals if arrival.at_us > back_us]
        if after:
            yield min(after) - back_us


def quantile(ordered: Sequence[int], share: float) -> int:
    """The least value that so many of them do not exceed; 0 if there are none."""
    if not ordered:
        return 0
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
