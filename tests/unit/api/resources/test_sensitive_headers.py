"""Values of sensitive headers: stored and sent, but never shown by the API."""

from typing import Any

import pytest
from tests.api import Answered, Api, document

from wheelsched.core.targets.sensitive import MASK
from wheelsched.jobs.targets import headers_of

SECRET = "Bearer s3cret-value"
TARGET: dict[str, Any] = {
    "url": "https://example.org/hooks/report",
    "headers": {"Authorization": SECRET, "x-team": "a"},
}
SHOWN = {"Authorization": MASK, "x-team": "a"}
POINTER = "/target/headers/Authorization"


def is_hidden(answer: Answered) -> bool:
    return "s3cret" not in str(answer.body) and "s3cret" not in str(answer.headers)


async def stored_headers(api: Api, job_id: str) -> dict[str, str]:
    return headers_of((await api.job(job_id)).target)


async def test_no_response_shows_sensitive_values(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    made = await api.post("/jobs", document(target=TARGET), headers=key)
    path = f"/jobs/{made.body['job_id']}"
    answers = [
        made,
        await api.post("/jobs", document(target=TARGET), headers=key),
        await api.get(path),
        await api.get("/jobs"),
        await api.call("PATCH", path, {"priority": 1}),
        await api.post(f"{path}/pause"),
        await api.post(f"{path}/resume"),
        await api.post("/preview", document(target=TARGET)),
        await api.post("/jobs/bulk", [document(name="b", target=TARGET), document(target=TARGET)]),
        await api.call("DELETE", path),
    ]
    assert [answer.status for answer in answers] == [201, 201, *[200] * 8]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert all(map(is_hidden, answers))
    assert made.body["target"]["headers"] == SHOWN


async def test_errors_do_not_quote_sensitive_values(api: Api) -> None:
    headers = {"authorization": "s3cret\x7f", "x-token": "s3cret" * 1_000, "a b": "s3cret"}
    target = TARGET | {"headers": headers}
    refused = await api.post("/jobs", document(target=target))
    assert refused.status == 422
    assert is_hidden(refused)


async def test_they_are_stored_as_written(api: Api) -> None:
    job = await api.create(target=TARGET)
    assert await stored_headers(api, job["job_id"]) == TARGET["headers"]


@pytest.mark.parametrize(
    "patch",
    [
        {"priority": 5},
        {"target": {"headers": {"Authorization": MASK}}},
        {"target": TARGET | {"headers": SHOWN}},
        {"target": {"headers": {"x-team": "a"}}},
    ],
)
async def test_a_patch_with_the_mask_keeps_the_stored_value(
    api: Api, patch: dict[str, Any]
) -> None:
    job = await api.create(target=TARGET)
    answer = await api.call("PATCH", f"/jobs/{job['job_id']}", patch)
    assert answer.status == 200, answer.body
    assert answer.body["target"]["headers"] == SHOWN
    assert await stored_headers(api, job["job_id"]) == TARGET["headers"]


async def test_a_whole_answer_sent_back_as_a_patch_changes_nothing_but_the_version(
    api: Api,
) -> None:
    job = await api.create(target=TARGET)
    before = await api.job(job["job_id"])
    fields = document(target=TARGET) | {"overlap": {}, "tags": {}}
    answer = await api.call("PATCH", f"/jobs/{job['job_id']}", {name: job[name] for name in fields})
    after = await api.job(job["job_id"])
    assert answer.status == 200, answer.body
    assert (after.target, after.spec) == (before.target, before.spec)


async def test_a_patch_with_another_value_replaces_it(api: Api) -> None:
    job = await api.create(target=TARGET)
    patch = {"target": {"headers": {"Authorization": "Bearer other"}}}
    answer = await api.call("PATCH", f"/jobs/{job['job_id']}", patch)
    assert answer.body["target"]["headers"] == SHOWN
    assert (await stored_headers(api, job["job_id"]))["Authorization"] == "Bearer other"


async def test_a_mask_for_a_header_without_a_stored_value_is_refused(api: Api) -> None:
    target = TARGET | {"headers": SHOWN}
    assert (await api.post("/jobs", document(target=target))).pointers == [POINTER]
    bulk = await api.post("/jobs/bulk", [document(target=target)])
    assert bulk.body["items"][0]["problem"]["errors"][0]["pointer"] == POINTER
    assert (await api.post("/preview", document(target=target))).pointers == [POINTER]
    job = await api.create()
    patched = await api.call("PATCH", f"/jobs/{job['job_id']}", {"target": {"headers": SHOWN}})
    assert patched.status == 422
    assert patched.pointers == [POINTER]
    assert "send the value itself" in patched.body["errors"][0]["detail"]


async def test_a_mask_in_a_header_that_is_not_sensitive_is_a_value(api: Api) -> None:
    job = await api.create(target=TARGET | {"headers": {"x-team": MASK}})
    assert await stored_headers(api, job["job_id"]) == {"x-team": MASK}


async def test_a_preview_takes_a_mask_for_the_job_of_that_name(api: Api) -> None:
    await api.create(target=TARGET)
    preview = await api.post("/preview", document(target=TARGET | {"headers": SHOWN}))
    assert preview.status == 200, preview.body
    assert preview.body["hidden_changes"] == []


async def test_a_preview_names_the_hidden_values_that_would_change(api: Api) -> None:
    assert (await api.post("/preview", document(target=TARGET))).body["hidden_changes"] is None
    await api.create(target=TARGET)
    same = await api.post("/preview", document(target=TARGET))
    assert same.body["hidden_changes"] == []
    other = TARGET | {"headers": {"Authorization": "Bearer other", "x-token": "new"}}
    changed = await api.post("/preview", document(target=other))
    assert changed.body["hidden_changes"] == [POINTER, "/target/headers/x-token"]


async def test_a_preview_compares_hidden_values_only_for_those_who_may_write_them(
    api: Api,
) -> None:
    await api.create(target=TARGET)
    await api.add_token("wst_reader", api.tenant_id, "read")
    preview = await api.post("/preview", document(target=TARGET), token="wst_reader")
    assert preview.status == 200
    assert preview.body["hidden_changes"] is None


@pytest.mark.parametrize(
    "headers", [{}, {"headers": {"Authorization": MASK}}, {"headers": {"x-team": "b"}}]
)
async def test_a_stored_value_does_not_follow_to_another_origin(
    api: Api, headers: dict[str, Any]
) -> None:
    job = await api.create(target=TARGET)
    patch = {"target": {"url": "https://elsewhere.example/hooks", **headers}}
    refused = await api.call("PATCH", f"/jobs/{job['job_id']}", patch)
    assert (refused.status, refused.pointers) == (422, [POINTER])
    patch["target"]["headers"] = {"Authorization": "Bearer another"}
    assert (await api.call("PATCH", f"/jobs/{job['job_id']}", patch)).status == 200


async def test_a_stored_value_follows_to_another_path(api: Api) -> None:
    job = await api.create(target=TARGET)
    patch = {"target": {"url": "https://EXAMPLE.org:443/elsewhere"}}
    assert (await api.call("PATCH", f"/jobs/{job['job_id']}", patch)).status == 200
    assert await stored_headers(api, job["job_id"]) == TARGET["headers"]
