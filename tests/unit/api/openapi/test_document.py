"""The OpenAPI document, and the API against it."""

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.api import Api

from wheelsched.core.model import JobState, RunState, SkipReason, Trigger


async def test_the_document_is_openapi(api: Api) -> None:
    document = (await api.get("/openapi.json", token=None)).body
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"


async def test_every_call_of_the_contract_is_described(api: Api) -> None:
    document = (await api.get("/openapi.json")).body
    described = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert described >= {
        "POST /jobs",
        "POST /jobs/bulk",
        "GET /jobs",
        "GET /jobs/{job_id}",
        "PATCH /jobs/{job_id}",
        "DELETE /jobs/{job_id}",
        "POST /jobs/{job_id}/pause",
        "POST /jobs/{job_id}/resume",
        "POST /jobs/{job_id}/trigger",
        "POST /jobs/{job_id}/backfill",
        "GET /jobs/{job_id}/next",
        "GET /jobs/{job_id}/explain",
        "GET /jobs/{job_id}/runs",
        "GET /runs/{run_id}",
        "POST /runs/{run_id}/heartbeat",
        "POST /runs/{run_id}/complete",
        "POST /runs/{run_id}/fail",
        "POST /runs/{run_id}/cancel",
        "POST /runs/{run_id}/retry",
        "GET /dead",
        "POST /dead/redrive",
        "POST /preview",
        "GET /shards",
        "GET /queues",
        "POST /queues/{queue}/claim",
        "POST /runs/outcomes",
        "POST /runs/heartbeats",
        "GET /stream",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
    }


async def test_the_document_lists_if_match_parameters(api: Api) -> None:
    paths = (await api.get("/openapi.json")).body["paths"]
    assert {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in paths.items()
        for method, call in methods.items()
        if "If-Match" in [parameter["name"] for parameter in call.get("parameters", [])]
    } == {
        "PATCH /jobs/{job_id}",
        "DELETE /jobs/{job_id}",
        "POST /jobs/{job_id}/pause",
        "POST /jobs/{job_id}/resume",
    }


async def test_every_field_and_every_parameter_is_described(api: Api) -> None:
    document = (await api.get("/openapi.json")).body
    fields = {
        f"{name}.{field}": described
        for name, schema in document["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
    }
    parameters = {
        f"{method} {path} {parameter['name']}": parameter
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        for parameter in call.get("parameters", [])
    }
    described = fields | parameters
    assert [name for name, each in described.items() if not each.get("description")] == []


async def test_every_field_of_a_job_has_an_example(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    documents = [name for name in schemas if name.endswith("Document")]
    assert set(documents) == {
        f"{name}Document" for name in ("Job", "Target", "Misfire", "Overlap", "Retry", "Dst")
    }
    for name in documents:
        for field, described in schemas[name]["properties"].items():
            assert "examples" in described, f"{name}.{field}"


async def test_choices_are_enumerated(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]

    def words(name: str, field: str) -> list[str]:
        found = schemas[name]["properties"][field]
        (enumerated,) = [each for each in found["anyOf"] if "enum" in each]
        return list(enumerated["enum"])

    assert words("MisfireDocument", "policy") == ["once", "all", "skip"]
    assert words("OverlapDocument", "policy") == ["skip", "queue", "allow", "cancel"]
    assert words("RetryDocument", "backoff") == ["exponential", "linear", "fixed"]
    assert words("DstDocument", "gap") == ["shift", "skip"]
    assert words("DstDocument", "overlap") == ["first", "last", "both"]
    assert words("TargetDocument", "method") == ["POST", "PUT", "PATCH"]
    for enumeration in (JobState, RunState, Trigger, SkipReason):
        assert sorted(schemas[enumeration.__name__]["enum"]) == sorted(enumeration)


OF_QUEUES = ("queue", "claim_within")


async def test_the_examples_are_accepted(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    properties = schemas["JobDocument"]["properties"]
    job = {name: described["examples"][0] for name, described in properties.items()}
    for name in ("target", "misfire", "overlap", "retry", "dst"):
        inner = schemas[f"{name.capitalize()}Document"]["properties"]
        job[name] = {field: described["examples"][0] for field, described in inner.items()}
    job["retry"]["initial"] = "1s"
    queue = {name: job["target"].pop(name) for name in OF_QUEUES}
    for target in (job["target"], queue):
        answer = await api.post("/jobs", job | {"name": str(target), "target": target})
        assert answer.status == 201, answer.body


async def test_the_defaults_of_the_document_are_those_of_a_job(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    job = await api.create()
    job["target"] |= (await api.create(name="queue", target={"queue": "billing"}))["target"]
    del job["timezone"]  # which the job of these tests has
    for name, described in schemas["JobDocument"]["properties"].items():
        if name in job and described.get("default") not in (None, {}):
            assert job[name] == described["default"], name
    for name in ("target", "misfire", "overlap", "retry", "dst"):
        for field, described in schemas[f"{name.capitalize()}Document"]["properties"].items():
            if described.get("default") is not None:
                assert job[name][field] == described["default"], f"{name}.{field}"


async def test_the_document_knows_the_fields_of_a_job(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    job = schemas["JobDocument"]
    assert job["required"] == ["name", "schedule", "target"]
    assert job["additionalProperties"] is False
    assert msgspec.json.encode(schemas["Problem"])
