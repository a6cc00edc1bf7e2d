"""The document that describes the API, and the API against it."""

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.api import Api


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
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /openapi.json",
    }


async def test_the_document_says_which_calls_heed_a_version(api: Api) -> None:
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


async def test_the_document_knows_the_fields_of_a_job(api: Api) -> None:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    job = schemas["JobDocument"]
    assert job["required"] == ["name", "schedule", "target"]
    assert job["additionalProperties"] is False
    assert msgspec.json.encode(schemas["Problem"])
