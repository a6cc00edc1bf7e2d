"""Conclusions from the records of the demo worker."""

from collections.abc import Iterator
from io import StringIO
from itertools import count
from pathlib import Path
from uuid import UUID

import msgspec
from rich.console import Console

from wheelsched.cli.demonstration.evidence import Evidence, Kill
from wheelsched.cli.demonstration.records import RECORD, Arrival, Records
from wheelsched.cli.demonstration.report import data_of, text_of
from wheelsched.cli.demonstration.scenario import Registered
from wheelsched.core.partition import partition_of
from wheelsched.values.duration import MILLISECOND, SECOND

INSTANT_US = 100 * SECOND
KILL_US = INSTANT_US + 300 * MILLISECOND
DEAD = frozenset(range(128))


def jobs(*, of_the_dead: bool) -> Iterator[UUID]:
    ids = (UUID(int=number) for number in count(1))
    return (each for each in ids if (partition_of(each) in DEAD) is of_the_dead)


ORPHAN, OTHER_ORPHAN = (job for job, _ in zip(jobs(of_the_dead=True), range(2), strict=False))
ONE_OFF, RECURRING = (job for job, _ in zip(jobs(of_the_dead=False), range(2), strict=False))


def arrival(
    job_id: UUID, due_us: int = INSTANT_US, late_ms: int = 5, *, is_first: bool = True
) -> Arrival:
    return Arrival(job_id, due_us, due_us + late_ms * MILLISECOND, is_first)


def evidence(*arrivals: Arrival) -> Evidence:
    """Two one-offs, one of them of the dead shard, and a recurring job of it, for two seconds."""
    return Evidence(
        registered=Registered(
            one_offs=frozenset({ONE_OFF, ORPHAN}),
            recurring=frozenset({OTHER_ORPHAN}),
            due_us=INSTANT_US,
            took_us=SECOND,
        ),
        arrivals=list(arrivals),
        since_us=INSTANT_US,
        until_us=INSTANT_US + 2 * SECOND,
        kill=Kill(KILL_US, DEAD, KILL_US + 80 * MILLISECOND),
        took_us=41_260 * MILLISECOND,
    )


ALL = (
    arrival(ONE_OFF),
    arrival(ORPHAN, late_ms=7_000),
    arrival(OTHER_ORPHAN, late_ms=7_000),
    arrival(OTHER_ORPHAN, INSTANT_US + SECOND, late_ms=6_300),
)


def test_nothing_is_lost_when_all_runs_arrived() -> None:
    seen = evidence(*ALL)
    assert (seen.lost, seen.early, seen.duplicates) == (0, 0, [])
    assert (seen.arrived_one_offs, seen.arrived_recurring) == (2, 2)


def test_each_missing_run_is_lost() -> None:
    for missing in ALL:
        assert evidence(*(each for each in ALL if each is not missing)).lost == 1


def test_runs_outside_of_the_window_and_of_others_do_not_count() -> None:
    seen = evidence(
        *ALL,
        arrival(OTHER_ORPHAN, INSTANT_US + 2 * SECOND),
        arrival(OTHER_ORPHAN, INSTANT_US - SECOND),
        arrival(RECURRING),
    )
    assert (seen.lost, seen.arrived_recurring) == (0, 2)


def test_a_duplicate_is_explained_by_the_shard_that_died() -> None:
    again = arrival(ORPHAN, late_ms=9_000, is_first=False)
    strange = arrival(ONE_OFF, late_ms=9_000, is_first=True)
    seen = evidence(*ALL, again, strange)
    assert seen.duplicates == [again, strange]
    assert (seen.unexplained, seen.done_twice, seen.lost) == (1, 1, 0)


def test_the_takeover_ends_with_the_next_run_of_the_dead_shard() -> None:
    assert evidence(*ALL).takeover_us == SECOND + 6_300 * MILLISECOND - 300 * MILLISECOND
    assert evidence(ALL[0]).takeover_us is None


def test_a_run_that_arrives_again_ends_the_takeover() -> None:
    sent_by_the_dead = arrival(ORPHAN, late_ms=50)
    again = arrival(ORPHAN, late_ms=700, is_first=False)
    assert evidence(sent_by_the_dead, again, *ALL[2:]).takeover_us == 400 * MILLISECOND


def test_an_unseen_takeover_is_not_claimed() -> None:
    unseen = msgspec.structs.replace(evidence(*ALL), kill=Kill(KILL_US, DEAD))
    assert unseen.ownership_us is None
    assert data_of(unseen)["ownership_ms"] is None


def test_an_early_run_is_counted() -> None:
    assert evidence(arrival(ONE_OFF, late_ms=-1)).early == 1


def test_the_report_shows_the_evidence() -> None:
    drawing = StringIO()
    console = Console(width=100, file=drawing)
    console.print(text_of(evidence(*ALL)))
    shown = drawing.getvalue()
    assert "2 of 2 one-offs, 2 of 2 recurring runs" in shown
    assert "0.08 s from kill -9" in shown
    assert "7.00 s until" in shown
    assert "41.3 s in total" in shown
    assert "█" in shown
    assert data_of(evidence(*ALL))["lost"] == 0
    assert data_of(evidence(*ALL))["took_s"] == 41.26


def test_records_are_read_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "records"
    record = RECORD.pack(ONE_OFF.bytes, 100, INSTANT_US + 5 * MILLISECOND, True)
    file.write_bytes(record + record[:7])
    records = Records(file)
    assert records.read_new() == [arrival(ONE_OFF)]
    file.write_bytes(record + record)
    assert records.read_new() == [arrival(ONE_OFF)]
    assert len(records.arrivals) == 2
    assert msgspec.json.encode(records.arrivals)
