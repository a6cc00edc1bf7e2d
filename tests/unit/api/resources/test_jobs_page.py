"""`docs/JOBS.md` against the OpenAPI document: the same fields, values, defaults and meanings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.api import Api

from wheelsched.core.idempotency import _WIDTHS
from wheelsched.core.model import JobState, RunState, SkipReason, Trigger
from wheelsched.schedule.cron.expression import ALIASES

PAGE = Path(__file__).parents[4] / "docs" / "JOBS.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \|.*\|$", re.MULTILINE)
HEADING = "| field | values | default | meaning |"
PARTS = ("target", "misfire", "overlap", "retry", "dst")


def row(field: str, schema: dict[str, Any], *, is_required: bool) -> str:
    """The table row of a field in the page."""
    kinds = schema.get("anyOf", [schema])
    values = " or ".join(filter(None, map(_values, kinds)))
    default = schema.get("default")
    shown = "required" if is_required else "–" if default is None else f"`{_written(default)}`"
    return f"| `{field}` | {values or 'JSON'} | {shown} | {schema['description']} |"


def _values(kind: dict[str, Any]) -> str:
    if "enum" in kind:
        return ", ".join(f"`{word}`" for word in kind["enum"])
    if "maximum" in kind:
        return f"{kind['minimum']:,} to {kind['maximum']:,}"
    if "pattern" in kind and "maxLength" not in kind:
        return "duration"
    if "$ref" in kind:
        return "object, below"
    named = {"string": "string", "object": "object", "array": "array", "integer": "integer"}
    return named.get(kind.get("type", ""), "")


def _written(default: Any) -> str:
    return default if isinstance(default, str) else json.dumps(default)


async def rows(api: Api) -> list[str]:
    schemas = (await api.get("/openapi.json")).body["components"]["schemas"]
    documents = {"": schemas["JobDocument"]}
    documents |= {f"{name}.": schemas[f"{name.capitalize()}Document"] for name in PARTS}
    schedule = schemas["JobDocument"]["properties"]["schedule"]["anyOf"][1]
    documents["schedule."] = schedule
    return [
        row(prefix + field, schema, is_required=field in document.get("required", []))
        for prefix, document in documents.items()
        for field, schema in document["properties"].items()
    ]


def table_rows() -> list[str]:
    """All rows of the field tables."""
    tables = PAGE.read_text("utf-8").split(HEADING)[1:]
    return [found[0] for table in tables for found in ROW.finditer(table.split("\n\n")[0])]


async def test_the_page_has_every_field_as_openapi_has_it_and_no_other(api: Api) -> None:
    assert sorted(table_rows()) == sorted(await rows(api))


@pytest.mark.parametrize("words", [JobState, RunState, SkipReason, Trigger])
def test_the_page_explains_every_state_reason_and_trigger(words: Any) -> None:
    page = PAGE.read_text("utf-8")
    assert [word for word in words if f"`{word}`" not in page] == []


def test_the_page_has_every_placeholder_and_alias() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in _WIDTHS if f"`{{{{{name}}}}}`" not in page] == []
    assert [alias for alias in ALIASES if f"`{alias.lower()}`" not in page] == []


async def test_the_examples_of_the_page_are_accepted(api: Api) -> None:
    blocks = re.findall(r"```json\n(\{.*?\n\})\n```", PAGE.read_text("utf-8"), re.DOTALL)
    jobs = [block for block in map(json.loads, blocks) if "schedule" in block]
    assert jobs
    for job in jobs:
        assert (await api.post("/preview", job)).status == 200
