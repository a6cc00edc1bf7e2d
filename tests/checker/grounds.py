"""Why a run was not sent, or not to its end: each reason in the tables has its ground.

A reason is what the product says of itself. What it has to rest on is in the other logs: a request,
another run of the job, how late it was, or what a worker answered.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct
from tests.checker.deliveries import has_failed
from tests.checker.excuses import WRITTEN_US, is_doubtful, tolerance_us, whole_since
from tests.checker.findings import Evidence, Finding
from tests.checker.oracle import due_times
from tests.checker.records import FINAL, Request, RunRow, Verb
from tests.checker.story import FOREVER_US, Story
from tests.checker.times import SECOND_US

MISFIRES = {"misfire_skip": "skip", "superseded": "once", "max_missed": "all"}  # by policy
WITHDRAWN = ("deleted", "paused", "edited")
QUEUE = 1_000  # runs of a job that wait for their turn
LOOKS_US = SECOND_US  # between two looks at what others have in hand
HIDING = ("crash", "freeze", "store", "deaf", "stall")  # what keeps a shard from hearing of an end
STOPPING = ("crash", "freeze", "stall")  # likewise, if the worker has told it


class Case(Struct, frozen=True):
    """A run that has ended without a success, and what is known around it."""

    evidence: Evidence
    story: Story
    run: RunRow
    ended_us: int  # by the database's clock
    at_us: int  # by the reference
    runs: list[RunRow]  # of its job
    tolerance_us: int

    @property
    def others(self) -> Iterator[RunRow]:
        return (other for other in self.runs if other.due_us != self.run.due_us)


def check(evidence: Evidence) -> Iterator[Finding]:
    for story in evidence.stories.values():
        runs = evidence.runs_of.get(story.job, [])
        ends = (end for run in runs for end, _ in evidence.lives_of(run))
        for run in ends:
            if (
                run.state in FINAL
                and run.state != "succeeded"
                and not _is_grounded(evidence, story, run, runs)
            ):
                yield Finding("groundless", run.job, run.due_us, f"{run.state} {run.skip_reason}")


def _is_grounded(evidence: Evidence, story: Story, run: RunRow, runs: list[RunRow]) -> bool:
    ground = GROUNDS.get(run.skip_reason if run.state == "skipped" else run.state)
    if ground is None or run.finished_at_us is None:
        return False
    # A clock that was set back has shown the time twice: it ended at one of these instants.
    cases = (
        Case(
            evidence,
            story,
            run,
            run.finished_at_us,
            at_us,
            runs,
            tolerance_us(evidence, at_us),
        )
        for at_us in evidence.times.instants_us(run.finished_at_us)
    )
    return any(map(ground, cases)) or is_doubtful(evidence, run.finished_at_us)


def _is_overlap(case: Case) -> bool:
    is_skip = any(one.overlap == "skip" for one in case.story.definitions.values())
    return is_skip and bool(_registry(case) or _kept_by_a_former_owner(case))


def _is_full(case: Case) -> bool:
    return len(_registry(case)) >= QUEUE


def _registry(case: Case) -> list[RunRow]:
    """The other runs that were due by then, and of whose end a shard may not have known."""
    times = case.evidence.times
    return [
        other
        for other in case.others
        if (other.state != "skipped" or _was_live(case, other))
        and times.instants_us(other.due_us)[0] <= case.at_us + case.tolerance_us
        and case.at_us <= _known_us(case, other)
    ]


def _was_live(case: Case, other: RunRow) -> bool:
    """Whether a run that was skipped was sent before, or waited for a worker. One that is armed
    again while it waits is late by then: its misfire policy applies."""
    is_queued = any(one.queue for one in case.story.definitions.values())
    is_withdrawn = other.skip_reason in (*WITHDRAWN, *MISFIRES) and other.armed_at_us is not None
    return (is_queued and is_withdrawn) or (other.job, other.due_us) in case.evidence.arrivals


def _known_us(case: Case, other: RunRow) -> int:
    """When whoever decided knew of an end: of what another shard carries, it has to look for it.

    Of what its worker has told it, it knows also while the store is away. It cannot write that yet,
    and the next run of the job waits for it; but it is not skipped.
    """
    ended_us = case.evidence.ended_us(other)
    if ended_us is None:
        return FOREVER_US
    if other.shard != case.run.shard:
        return whole_since(case.evidence, ended_us, WRITTEN_US + LOOKS_US, HIDING)
    kinds = STOPPING if _is_told(case, other) else HIDING
    return whole_since(case.evidence, ended_us, WRITTEN_US, kinds)


def _is_told(case: Case, other: RunRow) -> bool:
    """Whether a worker has said in its response that a run has succeeded."""
    return other.state == "succeeded" and any(
        arrival.token == other.token
        and arrival.answer == "ok"
        and arrival.answered_us is not None
        and not arrival.reported
        and not arrival.queue
        for arrival in case.evidence.arrivals.get((other.job, other.due_us), ())
    )


def _is_misfire(case: Case) -> bool:
    """Past its grace, by a policy that leaves it out; and those that were to fire for it are."""
    late_us = case.ended_us - case.run.due_us + case.tolerance_us
    later = sum(_later_due_times(case, other) for other in case.others)
    policy = MISFIRES[case.run.skip_reason or ""]
    return any(
        one.misfire == policy
        and late_us >= one.grace_us
        and later >= {"skip": 0, "once": 1, "all": one.max_missed}[policy]
        for one in case.story.definitions.values()
    )


def _later_due_times(case: Case, other: RunRow) -> int:
    """How many due times another row stands for, after that of the run and by its end."""
    if other.missed_since_us is None:
        return int(case.run.due_us < other.due_us <= case.ended_us)
    after_us = max(case.run.due_us, other.missed_since_us - 1)
    until_us = min(case.ended_us, case.story.told_until_us(other))
    schedules = [one.schedule for one in case.story.definitions.values()]
    return max(len(due_times(one, after_us, until_us)) for one in schedules)


def _is_past_window(case: Case) -> bool:
    late_us = case.ended_us - case.run.due_us + case.tolerance_us
    return any(late_us >= one.window_us for one in case.story.definitions.values())


def _is_paused(case: Case) -> bool:
    """By a client, or by a worker that wants no more."""
    is_gone = any(
        arrival.answer == "gone" and arrival.at_us <= case.at_us + case.tolerance_us
        for arrival in case.evidence.arrivals_of.get(case.run.job, ())
    )
    is_told = bool(_asked(case, "pause")) and _is_under_way(case, "pause", "resume")
    return is_gone or is_told or _is_still_paused(case)


def _is_still_paused(case: Case) -> bool:
    """A shard skips runs that wait for a worker while their job is paused, perhaps later."""
    resumed = [
        request
        for request in _asked(case, "resume")
        if request.result == "ok" and request.answered_us + case.tolerance_us < case.at_us
    ]
    return any(one.queue for one in case.story.definitions.values()) and any(
        pause.result == "unknown" or all(pause.sent_us > resume.sent_us for resume in resumed)
        for pause in _asked(case, "pause")
    )


def _is_edited(case: Case) -> bool:
    return any(request.is_rescheduled for request in _asked(case, "edit")) and _is_under_way(
        case, "edit"
    )


def _is_deleted(case: Case) -> bool:
    return bool(_asked(case, "delete"))


def _is_cancelled(case: Case) -> bool:
    """By a client, with its job, or in favour of a later run."""
    by_client = any(request.due_us == case.run.due_us for request in _asked(case, "cancel"))
    is_cancel = any(one.overlap == "cancel" for one in case.story.definitions.values())
    return by_client or _is_deleted(case) or (is_cancel and bool(_registry(case) or _kept(case)))


def _kept(case: Case) -> list[RunRow]:
    """Those that were about to be sent then, and withdrawn while they waited for a place, or handed
    over and skipped by the next owner."""
    return [
        other
        for other in case.others
        if other.skip_reason in ("deleted", "paused", "edited", *MISFIRES)
        and other.armed_at_us is not None
        and case.evidence.times.instants_us(other.due_us)[0] <= case.at_us + case.tolerance_us
        and case.at_us <= _known_us(case, other)
    ]


def _kept_by_a_former_owner(case: Case) -> list[RunRow]:
    """Those that were about to be sent then by an owner who was one no more when they ended."""
    ownerships = case.evidence.ownerships_of.get(case.run.partition, ())
    return [
        other
        for other in _kept(case)
        if (ended_us := case.evidence.ended_us(other)) is not None
        and any(
            one.from_us <= case.at_us < one.until_us <= ended_us
            for one in ownerships
            if one.until_us is not None
        )
    ]


def _is_under_way(case: Case, *verbs: Verb) -> bool:
    """Whether it ended as somebody asked for something; who hears nothing does not know when."""
    return any(
        request.result == "unknown" or case.at_us <= request.answered_us + case.tolerance_us
        for verb in verbs
        for request in _asked(case, verb)
    )


def _asked(case: Case, verb: Verb) -> list[Request]:
    """What clients had asked of the job by then, and may have got."""
    return [
        request
        for request in case.story.requests
        if request.verb == verb
        and request.result != "failed"
        and request.sent_us <= case.at_us + case.tolerance_us
    ]


def _is_dead(case: Case) -> bool:
    """Its last attempt was refused; or it failed, and there was to be no other; or none may be."""
    row = case.evidence.runs[case.run.job, case.run.due_us]
    arrivals = next(sent for end, sent in case.evidence.lives_of(row) if end is case.run)
    last = [one for one in arrivals if one.token == case.run.token] or arrivals[-1:]
    most = min(one.max_attempts for one in case.story.definitions.values())
    if not arrivals and any(one.is_forbidden for one in case.story.definitions.values()):
        return True
    if _is_unclaimed(case):
        return True
    is_last = case.run.attempt - case.run.attempts_before >= most or _is_deleted(case)
    until_us = case.at_us + case.tolerance_us
    return any(
        one.answer in ("rejected", "gone") or (is_last and has_failed(case.evidence, one, until_us))
        for one in last
    )


def _is_unclaimed(case: Case) -> bool:
    """It has waited for a worker for as long as its job allows, since it last came to its queue."""
    handed = case.evidence.hand_outs.get((case.run.job, case.run.due_us), ())
    since_us = [case.evidence.times.instants_us(case.run.due_us)[0]]
    since_us += [one.given_back_us or one.at_us for one in handed if one.at_us <= case.at_us]
    waited_us = case.at_us - max(since_us) + case.tolerance_us
    return any(
        one.queue and waited_us >= one.claim_within_us for one in case.story.definitions.values()
    )


GROUNDS: dict[str | None, Callable[[Case], bool]] = {
    "overlap": _is_overlap,
    "queue_full": _is_full,
    "misfire_skip": _is_misfire,
    "superseded": _is_misfire,
    "max_missed": _is_misfire,
    "past_window": _is_past_window,
    "paused": _is_paused,
    "edited": _is_edited,
    "deleted": _is_deleted,
    "cancelled": _is_cancelled,
    "dead": _is_dead,
}
