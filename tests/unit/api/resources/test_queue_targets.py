"""Jobs whose runs wait in a queue: registered, shown, changed and explained by the API."""

from typing import Any

import pytest
from tests.api import Api, document

from wheelsched.core.model import HttpTarget, QueueTarget

QUEUE: dict[str, Any] = {"queue": "billing"}
SHOWN = {"queue": "billing", "claim_within": "1h"}
URL = "https://example.org/hooks/report"
HTTP_SHOWN = {"url": URL, "method": "POST", "headers": {}, "batch": 1}


async def test_a_job_for_a_queue_is_registered_and_shown(api: Api) -> None:
    made = await api.post("/jobs", document(target=QUEUE))
    assert (made.status, made.body["target"]) == (201, SHOWN)
    job_id = made.body["job_id"]
    assert (await api.get(f"/jobs/{job_id}")).body["target"] == SHOWN
    assert [job["target"] for job in (await api.get("/jobs")).body["items"]] == [SHOWN]
    assert (await api.job(job_id)).target == QueueTarget(queue="billing")


async def test_a_job_with_a_url_is_shown_without_a_queue(api: Api) -> None:
    made = await api.post("/jobs", document(target={"url": URL}))
    assert made.body["target"] == HTTP_SHOWN


async def test_jobs_for_queues_are_registered_in_bulk_and_previewed(api: Api) -> None:
    jobs = [document(name=name, target=QUEUE) for name in ("a", "b")]
    jobs += [document(name="c", target={"queue": "no name"}), document(name="d", target={})]
    items = (await api.post("/jobs/bulk", jobs)).body["items"]
    assert [item.get("problem") is None for item in items] == [True, True, False, False]
    previewed = await api.post("/preview", document(target=QUEUE))
    assert previewed.status == 200, previewed.body


@pytest.mark.parametrize(
    ("target", "pointers"),
    [
        ({}, {"/target"}),
        ({"queue": None}, {"/target"}),
        ({"queue": 5}, {"/target/queue"}),
        ({"url": 5}, {"/target/url"}),
        ({"queue": "a/b"}, {"/target/queue"}),
        ({"queue": "a", "url": URL}, {"/target/queue"}),
        ({"queue": "a", "claim_within": "0s"}, {"/target/claim_within"}),
        ({"queue": "a", "headers": {}, "batch": 2}, {"/target/headers", "/target/batch"}),
        ({"url": URL, "claim_within": "1h"}, {"/target/claim_within"}),
        ({"claim_within": "1h"}, {"/target"}),
    ],
)
async def test_an_invalid_target_is_refused_with_pointers(
    api: Api, target: dict[str, Any], pointers: set[str]
) -> None:
    refused = await api.post("/jobs", document(target=target))
    assert refused.status == 422
    assert set(refused.pointers) == pointers


async def test_a_job_can_change_from_a_url_to_a_queue_and_back(api: Api) -> None:
    target = {"url": URL, "headers": {"authorization": "s3cret"}, "batch": 3}
    job_id = (await api.create(target=target))["job_id"]
    path = f"/jobs/{job_id}"
    changed = await api.call("PATCH", path, {"target": QUEUE | {"claim_within": "2h"}})
    assert changed.body["target"] == SHOWN | {"claim_within": "2h"}
    changed = await api.call("PATCH", path, {"target": {"claim_within": "3h"}})
    assert changed.body["target"] == SHOWN | {"claim_within": "3h"}
    changed = await api.call("PATCH", path, {"target": {"claim_within": None}})
    assert changed.body["target"] == SHOWN
    masked = {"url": URL, "headers": {"authorization": "***"}}
    refused = await api.call("PATCH", path, {"target": masked})
    assert refused.pointers == ["/target/headers/authorization"]
    changed = await api.call("PATCH", path, {"target": {"url": URL}})
    assert changed.body["target"] == HTTP_SHOWN
    assert (await api.job(job_id)).target == HttpTarget(url=URL)


async def test_a_patch_that_mixes_both_kinds_is_refused(api: Api) -> None:
    path = f"/jobs/{(await api.create(target=QUEUE))['job_id']}"
    refused = await api.call("PATCH", path, {"target": {"queue": "a", "url": URL}})
    assert refused.pointers == ["/target/queue"]
    refused = await api.call("PATCH", path, {"target": {"batch": 2}})
    assert refused.pointers == ["/target/batch"]


async def test_the_answer_sent_back_as_a_patch_changes_nothing(api: Api) -> None:
    made = await api.create(target=QUEUE)
    answer = await api.call("PATCH", f"/jobs/{made['job_id']}", {"target": made["target"]})
    assert answer.body["target"] == made["target"]
