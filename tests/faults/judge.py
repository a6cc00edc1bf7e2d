"""The judge of an experiment: what the checker found, what the scenario saw, and how long it took.

Invariant: one broken promise of safety makes a verdict *broken*, whatever the machine was doing. A
promise about time makes it *slow*: on a machine that has other things to do, that is no proof.

How long a takeover may take depends on the death. That of a process is known at once: its parent
has waited for it, or its connections have ended. Of what is frozen or cut off nobody can know.

A shard whose connections were cut has half a second to renew over a new one, and is taken over if
it needs longer. That is a promise about time too.

A shard that dies in the middle of a crowd, very many runs of one second, leaves a crowd behind.
Then the promise is that the whole crowd is out in time, and the next fire of each job with it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from tests.checker.check import check
from tests.checker.records import Arrival, Fault, History, Schedule

SECOND_US = 1_000_000
ABOUT_TIME = ("late", "too_late")
KNOWN_P99_US = SECOND_US
KNOWN_MAX_US = 3 * SECOND_US // 2
CROWD_US = 4 * SECOND_US
TAKEOVER_P99_US = 8 * SECOND_US
TAKEOVER_MAX_US = 15 * SECOND_US
LEASE_US = 5 * SECOND_US
TOGETHER_US = SECOND_US // 10  # shards of one parent die together
COSTLY_US = 3 * SECOND_US  # so long a fault may cost a lease
DISTURBING = ("crash", "freeze", "store", "clock")  # faults that make a takeover longer
AGAIN_US = 12 * SECOND_US  # a lease of 6 s, two looks and a retry
RETURN_US = 3 * SECOND_US
EVERY_SECOND = "* * * * * *"


class Takeover(Struct, frozen=True, order=True):
    """One job of a shard that was taken over: how long it was not fired."""

    took_us: int
    is_known: bool  # the shard was killed, and nothing else was broken


class Robbed(Struct, frozen=True, order=True):
    """A shard that was taken over although nothing had happened that ends a lease."""

    shard: str
    was_cut: bool  # its connections had just ended, and it needed too long for new ones


class Observation(Struct, frozen=True, kw_only=True):
    """What happened, and what the scenario has seen by itself."""

    history: History
    broken: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    returns_us: tuple[int, ...] = ()  # when Postgres was back
    again_us: int | None = None  # until the runs in hand of a worker that is gone are at another
    crowd_us: int | None = None  # from the second of a crowd to the last arrival of it
    is_faultless: bool = False  # nothing was broken: a machine that stalls explains no duplicate


class Verdict(Struct, frozen=True, kw_only=True):
    """The outcome of one experiment, as the table shows it."""

    name: str
    runs: int = 0
    arrivals: int = 0
    found: Counter[str] = Counter()
    forgotten_jobs: int = 0  # that were acknowledged, and are gone with what the database forgot
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
    robbed = find_robbed(history)
    broken += [f"taken over while it lived: {one.shard}" for one in robbed if not one.was_cut]
    if not history.arrivals:
        broken.append("nothing arrived at all")
    slow = [f"{name} × {count}" for name, count in found.items() if name in ABOUT_TIME]
    slow += [f"taken over after a cut: {one.shard}" for one in robbed if one.was_cut]
    takeovers = sorted(measure_takeovers(history))
    takeovers_us = [one.took_us for one in takeovers]
    known_us = [one.took_us for one in takeovers if one.is_known]
    returns_us = tuple(measure_returns(history, seen.returns_us))
    if len(returns_us) < len(seen.returns_us):
        broken.append("nothing was fired any more when Postgres was back")
    if seen.crowd_us is not None:
        if seen.crowd_us > CROWD_US:
            slow.append("not everything out 4 s after the second")
        if quantile(known_us, 1) > CROWD_US:
            slow.append("takeover after a known death over 4 s, in a crowd")
    else:
        slow += _judge_known(known_us)
    slow += _judge_again(seen.again_us)
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
        forgotten_jobs=report.forgotten_jobs,
        explained=report.duplicates,
        takeovers_us=tuple(takeovers_us),
        lateness_us=tuple(sorted(report.lateness_us)),
        returns_us=returns_us,
        broken=(*seen.broken, *broken),
        slow=tuple(slow),
        remarks=seen.remarks,
    )


def _judge_known(known_us: Sequence[int]) -> Iterable[str]:
    """What was slow about takeovers after a death that was known at once."""
    if quantile(known_us, 0.99) > KNOWN_P99_US:
        yield "takeover after a known death p99 over 1 s"
    if quantile(known_us, 1) > KNOWN_MAX_US:
        yield "takeover after a known death over 1.5 s"


def _judge_again(again_us: int | None) -> list[str]:
    is_slow = again_us is not None and again_us > AGAIN_US
    return ["runs in hand at another worker later than 12 s"] if is_slow else []


def unavailable(name: str, reason: str) -> Verdict:
    return Verdict(name=name, remarks=(reason,), is_available=False)


def measure_takeovers(history: History) -> Iterable[Takeover]:
    """From the end of a shard to the next fire of each of its jobs that is due every second.

    What is due later than the end of the shard is counted from when it is due.
    """
    busy = {
        request.job
        for request in history.requests
        if request.definition is not None and _is_each_second(request.definition.schedule)
    }
    touched = {
        request.job for request in history.requests if request.verb not in ("create", "edit")
    }
    partitions = {job.job: job.partition for job in history.jobs if job.job in busy - touched}
    for fault, epochs in _taken_over(history):
        fired: dict[str, Arrival] = {}
        for arrival in sorted(history.arrivals, key=lambda arrival: arrival.at_us):
            epoch = epochs.get(partitions.get(arrival.job, -1))
            if epoch is not None and arrival.token >> 32 > epoch and arrival.at_us > fault.from_us:
                fired.setdefault(arrival.job, arrival)
        for arrival in fired.values():
            took_us = arrival.at_us - max(fault.from_us, arrival.due_us)
            yield Takeover(took_us, _is_known(history, fault, arrival.at_us))


def _is_each_second(schedule: Schedule) -> bool:
    return schedule.cron == EVERY_SECOND or schedule.every_us == SECOND_US


def _is_known(history: History, fault: Fault, fired_us: int) -> bool:
    """Whether a death was that of a process, and nothing else was broken around it."""
    return fault.kind == "crash" and not any(
        other.kind in DISTURBING
        and not (other.kind == "crash" and abs(other.from_us - fault.from_us) < TOGETHER_US)
        and other.from_us < fired_us
        and other.until_us > fault.from_us - LEASE_US
        for other in history.faults
    )


def find_robbed(history: History) -> list[Robbed]:
    """The shards that were taken over although nothing had happened that ends a lease."""
    return sorted(
        {
            Robbed(ownership.shard, _was_cut(history, ownership.shard, ownership.until_us))
            for ownership in history.ownerships
            if ownership.ended == "taken_over"
            and ownership.until_us is not None
            and not _has_cause(history, ownership.shard, ownership.until_us)
        }
    )


def _was_cut(history: History, shard: str, until_us: int) -> bool:
    """Whether the way of a shard to the database was broken shortly before."""
    return any(
        fault.kind == "store"
        and fault.shard in (shard, None)
        and fault.from_us < until_us
        and fault.until_us > until_us - LEASE_US
        for fault in history.faults
    )


def _has_cause(history: History, shard: str, until_us: int) -> bool:
    """Whether something may have cost a shard its lease by then."""
    faults = [
        fault
        for fault in history.faults
        if fault.shard in (shard, None) and fault.from_us < until_us
    ]
    away_us = sum(
        min(fault.until_us, until_us) - fault.from_us
        for fault in faults
        if fault.kind in ("store", "stall") and fault.until_us > until_us - 2 * LEASE_US
    )
    is_ended = any(fault.kind in ("crash", "freeze", "clock") for fault in faults)
    # Who notices that the database went back ends its lease itself.
    is_lost = any(
        fault.kind == "loss" and fault.until_us > until_us - 2 * LEASE_US for fault in faults
    )
    return is_ended or is_lost or away_us > COSTLY_US


def _taken_over(history: History) -> Iterable[tuple[Fault, dict[int, int]]]:
    """The faults that ended in a takeover: which partitions, and their epochs until then.

    The last fault of a shard before it was taken over is the cause: it had survived the others.
    """
    causes: dict[Fault, dict[int, int]] = {}
    for ownership in history.ownerships:
        if ownership.ended != "taken_over" or ownership.until_us is None:
            continue
        faults = [
            fault
            for fault in history.faults
            if fault.kind in ("crash", "freeze")
            and fault.shard == ownership.shard
            and fault.from_us < ownership.until_us
        ]
        if faults:
            cause = max(faults, key=lambda fault: fault.from_us)
            causes.setdefault(cause, {})[ownership.partition] = ownership.epoch
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
