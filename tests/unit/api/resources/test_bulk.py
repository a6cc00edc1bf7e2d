import json
from typing import Any

from tests.api import Api, document

NDJSON = {"Content-Type": "application/x-ndjson"}


def documents(count: int) -> list[dict[str, Any]]:
    return [document(name=f"job-{number}") for number in range(count)]


async def test_an_array_is_registered_item_by_item(api: Api) -> None:
    answer = await api.post("/jobs/bulk", documents(2_500))
    assert answer.status == 200
    assert (answer.body["registered"], answer.body["refused"]) == (2_500, 0)
    last = answer.body["items"][-1]["job_id"]
    assert (await api.get(f"/jobs/{last}")).body["name"] == "job-2499"
    assert len({item["job_id"] for item in answer.body["items"]}) == 2_500


async def test_lines_are_registered_item_by_item(api: Api) -> None:
    lines = "\n".join(map(json.dumps, documents(3))) + "\n\n"
    answer = await api.post("/jobs/bulk", lines.encode(), headers=NDJSON)
    assert answer.body["registered"] == 3


async def test_each_item_has_its_own_warnings(api: Api) -> None:
    schedules = ("0 0 */2 * 1", "0 9 * * *")
    answer = await api.post(
        "/jobs/bulk", [document(name=schedule, schedule=schedule) for schedule in schedules]
    )
    warned, plain = answer.body["items"]
    assert "Kubernetes" in warned["warnings"][0]
    assert "warnings" not in plain


async def test_a_rejected_item_does_not_affect_others(api: Api) -> None:
    await api.create(name="taken")
    lines = [
        json.dumps(document(name="first")),
        '{"name": "a", "name": "b"}',
        json.dumps(document(name="taken")),
        json.dumps(document(name="bad", schedule="* * *", timeout="0s")),
        "[1]",
        "{",
        json.dumps(document(name="twice")),
        json.dumps(document(name="twice")),
        json.dumps(document(name="last")),
    ]
    answer = await api.post("/jobs/bulk", "\n".join(lines).encode(), headers=NDJSON)
    assert (answer.status, answer.body["registered"], answer.body["refused"]) == (200, 3, 6)
    items = answer.body["items"]
    assert ["job_id" in item for item in items] == [
        *(True, False, False, False, False, False, True, False, True)
    ]
    statuses = [item["problem"]["status"] for item in items if "problem" in item]
    assert statuses == [400, 409, 422, 422, 400, 409]
    pointers = [error["pointer"] for error in items[3]["problem"]["errors"]]
    assert pointers == ["/timeout", "/schedule"]


async def test_a_body_that_is_not_an_array_is_rejected(api: Api) -> None:
    assert (await api.post("/jobs/bulk", document())).status == 422
    assert (await api.post("/jobs/bulk", b"[{}")).status == 400
    assert (await api.post("/jobs/bulk", b"[" * 200_000)).status == 400
    assert (await api.post("/jobs/bulk", b"")).status == 400
    assert (await api.post("/jobs/bulk", [])).body["items"] == []


async def test_each_item_beyond_the_quota_is_rejected(api: Api) -> None:
    small_id = await api.add_tenant("small", job_quota=1_500)
    await api.add_token("wst_small", small_id, "write")
    answer = await api.post("/jobs/bulk", documents(2_000), token="wst_small")
    assert (answer.body["registered"], answer.body["refused"]) == (1_500, 500)
    problems = [item.get("problem") for item in answer.body["items"]]
    assert [problem is None for problem in problems] == [True] * 1_500 + [False] * 500
    assert (problems[-1]["status"], problems[-1]["type"][-14:]) == (403, "quota-exceeded")
    assert "none was registered" not in problems[-1]["detail"]


async def test_items_with_taken_names_do_not_use_quota(api: Api) -> None:
    small_id = await api.add_tenant("small", job_quota=4)
    await api.add_token("wst_small", small_id, "write")
    await api.post("/jobs/bulk", documents(2), token="wst_small")
    answer = await api.post("/jobs/bulk", documents(6), token="wst_small")
    problems = [item.get("problem", {}).get("status") for item in answer.body["items"]]
    assert problems == [409, 409, None, None, 403, 403]


async def test_a_retried_bulk_registers_nothing_twice(api: Api) -> None:
    key = {"Idempotency-Key": "import-1"}
    first = await api.post("/jobs/bulk", documents(10), headers=key)
    again = await api.post("/jobs/bulk", documents(10), headers=key)
    assert again.body == first.body
