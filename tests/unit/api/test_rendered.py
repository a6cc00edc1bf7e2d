"""Answers that are kept: never for another version, and never beyond their next run."""

from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from tests.api import Api

from wheelsched.api.rendered import MAX_ANSWER, RenderedJobs
from wheelsched.core.duration import MINUTE
from wheelsched.core.model import Draft, Job, JobState, Target
from wheelsched.core.spec import Spec
from wheelsched.ports import JobVersion
from wheelsched.wire.job import JobAnswer

NOW_US = 1_800_000_000_000_000
JOB = Job(
    job_id=UUID(int=1),
    tenant_id=UUID(int=2),
    name="a",
    schedule=Raw(b'"every 5m"'),
    spec=Spec(kind="every", expression="5m"),
    anchor_us=NOW_US,
    target=Target(url="https://example.org/"),
    created_at_us=NOW_US,
    updated_at_us=NOW_US,
)


def version_of(job: Job) -> JobVersion:
    return JobVersion(job.job_id, job.version, job.updated_at_us)


def next_run_at(answer: Raw) -> object:
    return msgspec.json.decode(answer, type=JobAnswer).next_run_at


def test_an_answer_holds_until_the_next_run() -> None:
    rendered = RenderedJobs()
    first = rendered.render(JOB, NOW_US)
    assert rendered.at(NOW_US)(version_of(JOB)) is first
    assert rendered.at(NOW_US + 5 * MINUTE - 1)(version_of(JOB)) is first
    assert rendered.at(NOW_US + 5 * MINUTE)(version_of(JOB)) is None
    later = rendered.render(JOB, NOW_US + 5 * MINUTE)
    assert next_run_at(later.answer) != next_run_at(first.answer)
    assert rendered.at(NOW_US + 5 * MINUTE)(version_of(JOB)) is later


def test_an_answer_does_not_hold_before_it_was_made() -> None:
    """The database's clock may be set back, and an earlier run comes next."""
    rendered = RenderedJobs()
    rendered.render(JOB, NOW_US)
    assert rendered.at(NOW_US - 1)(version_of(JOB)) is None


def test_another_version_has_no_answer() -> None:
    rendered = RenderedJobs()
    rendered.render(JOB, NOW_US)
    look_up = rendered.at(NOW_US)
    assert look_up(version_of(replace(JOB, version=2))) is None
    assert look_up(version_of(replace(JOB, updated_at_us=NOW_US + 1))) is None


def test_a_job_that_is_not_due_again_has_an_answer_for_good() -> None:
    rendered = RenderedJobs()
    paused = rendered.render(replace(JOB, state=JobState.PAUSED), NOW_US)
    assert rendered.at(NOW_US * 2)(version_of(JOB)) is paused


def test_drafts_and_large_answers_are_not_kept() -> None:
    rendered = RenderedJobs()
    draft = Draft(
        job_id=UUID(int=1),
        tenant_id=UUID(int=2),
        name="a",
        document=Raw(b"{}"),
        created_at_us=NOW_US,
        updated_at_us=NOW_US,
    )
    rendered.render(draft, NOW_US)
    rendered.render(replace(JOB, payload=Raw(b'"%s"' % (b"x" * MAX_ANSWER))), NOW_US)
    assert rendered.at(NOW_US)(version_of(JOB)) is None


def test_the_least_recently_used_answer_makes_room() -> None:
    jobs = [replace(JOB, job_id=UUID(int=number)) for number in range(3)]
    size = len(bytes(RenderedJobs().render(JOB, NOW_US).answer)) + 300
    rendered = RenderedJobs(max_bytes=2 * size)
    look_up = rendered.at(NOW_US)
    rendered.render(jobs[0], NOW_US)
    rendered.render(jobs[1], NOW_US)
    assert look_up(version_of(jobs[0]))
    rendered.render(jobs[2], NOW_US)
    assert [look_up(version_of(job)) is not None for job in jobs] == [True, False, True]


async def test_a_list_shows_what_a_job_is_now(api: Api) -> None:
    job = await api.create(name="a")
    path = f"/jobs/{job['job_id']}"
    for method, verb, body in (
        ("PATCH", "", {"priority": 7}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ):
        for _ in range(2):
            (listed,) = (await api.get("/jobs")).body["items"]
            assert listed == (await api.get(path)).body
        assert (await api.call(method, path + verb, body)).status == 200
    (listed,) = (await api.get("/jobs")).body["items"]
    assert listed["priority"] == 7
    assert listed == (await api.get(path)).body
