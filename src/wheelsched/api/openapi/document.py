"""Builds the OpenAPI document from the operations and their structs.

Invariant: it contains every operation, and nothing that is not in an `Operation` or a struct.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec

from wheelsched.api.http.idempotency import HEADER
from wheelsched.api.http.operation import JSON, MERGE_PATCH, PREFIX, Operation
from wheelsched.api.openapi.descriptions import describe_all, description_of
from wheelsched.core.targets.queue import QUEUE_PATTERN
from wheelsched.wire.annotations import with_defaults
from wheelsched.wire.problem import CONTENT_TYPE, Problem

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {
    "job_id": {"type": "string", "format": "uuid"},
    "run_id": {"type": "string", "pattern": "^[0-9a-f]{32}-[0-9]{1,19}$"},
    "token_id": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "tenant_id": {"type": "string", "format": "uuid"},
    "queue": {"type": "string", "pattern": f"^{QUEUE_PATTERN}$"},
}
_PROBES: Final = {
    "/healthz": "Liveness: the process is running",
    "/readyz": "Readiness: the database answers and due jobs are armed",
    "/metrics": "Prometheus metrics",
    "/openapi.json": "This document",
}


def describe(operations: Iterable[Operation]) -> bytes:
    """The OpenAPI document as JSON."""
    operations = list(operations)
    types = [Problem, *_types_of(operations)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    components = with_defaults(components)
    describe_all(components)
    by_type = {id(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(PREFIX + operation.path, {})
        path[operation.method.lower()] = _operation(operation, by_type)
    for address, summary in _PROBES.items():
        paths[address] = {"get": _probe(address, summary)}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "wheelsched",
            "version": version("wheelsched"),
            "description": "A distributed job scheduler that fires on time.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document, order="deterministic")


def _types_of(operations: list[Operation]) -> list[Any]:
    """Every request and response type, once."""
    found: dict[int, Any] = {}
    for operation in operations:
        for kind in (_body_of(operation), operation.response):
            if kind is not None:
                found[id(kind)] = kind
    return list(found.values())


def _body_of(operation: Operation) -> Any:
    return operation.described_body or operation.body


def _operation(operation: Operation, by_type: Mapping[int, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"{operation.description} Requires the scope {_scopes(operation)}.".lstrip(),
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {
            str(operation.status): _success(operation, by_type),
            "default": _content("Error", CONTENT_TYPE, by_type[id(Problem)]),
        },
    }
    if operation.method == "POST" and not operation.is_repeatable:
        described["parameters"].append(_header(HEADER, "^[!-~]{1,255}$"))
    if operation.is_conditional:
        described["parameters"].append(_header("If-Match", r'^\*$|^"[0-9]+"$'))
    if (body := _body_of(operation)) is not None:
        described["requestBody"] = _request_body(operation, by_type[id(body)])
    return described


def _scopes(operation: Operation) -> str:
    return " or ".join(f"`{scope}`" for scope in (operation.scope, *operation.other_scopes))


def _request_body(operation: Operation, schema: Any) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for content_type in operation.content_types:
        # Merge patches and NDJSON have no schema of their own.
        is_document = content_type == JSON and MERGE_PATCH not in operation.content_types
        content[content_type] = {"schema": schema if is_document else {}}
    return {"required": not operation.is_body_optional, "content": content}


def _success(operation: Operation, by_type: Mapping[int, Any]) -> dict[str, Any]:
    if operation.response is None:
        return {"description": operation.summary}
    return _content(operation.summary, JSON, by_type[id(operation.response)])


def _content(description: str, content_type: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {content_type: {"schema": schema}}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]} | _about(name)
        for name in _PARAMETER.findall(operation.path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([operation.query], ref_template=_REF)
    schema = components[operation.query.__name__]
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _inlined(described, components),
        }
        | _about(name, described.get("description"))
        for name, described in schema["properties"].items()
    ]


def _inlined(schema: Any, components: Mapping[str, Any]) -> Any:
    """The schema with its references inlined; those of parameters are small and used once."""
    match schema:
        case {"$ref": str(reference)}:
            return _inlined(components[reference.rpartition("/")[2]], components)
        case dict():
            return {name: _inlined(value, components) for name, value in schema.items()}
        case list():
            return [_inlined(value, components) for value in schema]
        case _:
            return schema


def _header(name: str, pattern: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "schema": schema} | _about(name)


def _about(name: str, description: str | None = None) -> dict[str, str]:
    """The description of a parameter, if there is one."""
    text = description or description_of(name)
    return {"description": text} if text else {}


def _probe(address: str, summary: str) -> dict[str, Any]:
    return {
        "operationId": address.strip("/").replace(".", "_"),
        "summary": summary,
        "security": [{}],
        "responses": {"200": {"description": summary}},
    }
