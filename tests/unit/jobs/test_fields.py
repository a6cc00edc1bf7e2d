"""Every layer that handles job documents handles every field of them.

`EXAMPLES` has a value for each field of `JobDocument`, inner fields included, that is not its
default. A field that is added to the document fails `test_every_field_has_an_example` first, and
then the test of each layer that does not handle it.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import Raw, Struct
from tests.unit.jobs.documents import (
    JOB_ID,
    NOW_US,
    REQUIRED,
    TENANT_ID,
    as_document,
    new_parser,
)

from wheelsched.cli import job_options
from wheelsched.cli.export import sparse
from wheelsched.cli.manifest import differences, patch_of
from wheelsched.client.fields import JobChanges, JobFields
from wheelsched.core.model import Draft, Job
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.describe import document_of, job_answer, masked_document_of
from wheelsched.jobs.drafts import draft_answer
from wheelsched.jobs.fields import FIELDS, OPAQUE_FIELDS, normalize_document, shared_key
from wheelsched.store.definition import decode_job, encode_definition, encode_tags
from wheelsched.wire.annotations import DEFAULT
from wheelsched.wire.job import JobDocument

EXAMPLES: dict[tuple[str, ...], Any] = {
    ("name",): "b",
    ("schedule",): {"every": "5m"},
    ("target", "url"): "https://example.com/other",
    ("target", "method"): "PUT",
    ("target", "headers"): {"x-team": "a"},
    ("target", "batch"): 7,
    ("target", "queue"): "billing",
    ("target", "claim_within"): "30m",
    ("timezone",): "Europe/Berlin",
    ("payload",): {"a": [1, None]},
    ("misfire", "policy"): "all",
    ("misfire", "grace"): "30s",
    ("misfire", "window"): "2h",
    ("misfire", "max_missed"): 9,
    ("overlap", "policy"): "queue",
    ("overlap", "max_concurrent"): 1,
    ("retry", "max_attempts"): 9,
    ("retry", "backoff"): "linear",
    ("retry", "initial"): "2s",
    ("retry", "max"): "1m",
    ("timeout",): "30s",
    ("jitter",): "5s",
    ("priority",): 3,
    ("dst", "gap"): "skip",
    ("dst", "overlap"): "both",
    ("idempotency_key",): "{{job_id}}:{{date}}",
    ("tags",): {"team": "a"},
}
OF_QUEUES = {("target", "queue"), ("target", "claim_within")}
Layer = Callable[[JobDocument], Any]


def leaves(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields below a struct or a typed dictionary."""
    for name, inner in _inner_fields(kind):
        parts = [part for part in _alternatives(inner) if _inner_fields(part)]
        for part in parts:
            yield from leaves(part, (*path, name))
        if not parts:
            yield (*path, name)


def _inner_fields(kind: Any) -> list[tuple[str, Any]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [(each.name, each.type) for each in msgspec.structs.fields(kind)]
    if hasattr(kind, "__total__"):
        return list(get_type_hints(kind).items())
    return []


def _alternatives(kind: Any) -> list[Any]:
    if hasattr(kind, "__metadata__"):
        return _alternatives(kind.__origin__)
    if get_origin(kind) in (Union, UnionType):
        return [part for each in get_args(kind) for part in _alternatives(each)]
    return [kind]


def documented_defaults(
    kind: type[Struct], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The default in the description of each field, by its path."""
    for each in msgspec.structs.fields(kind):
        inner = [part for part in _alternatives(each.type) if _inner_fields(part)]
        for part in inner:
            yield from documented_defaults(part, (*path, each.name))
        for meta in () if inner else each.type.__metadata__:
            if DEFAULT in (meta.extra_json_schema or {}):
                yield (*path, each.name), meta.extra_json_schema[DEFAULT]


def as_tree(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def needed(path: tuple[str, ...]) -> dict[str, Any]:
    """The smallest document that can have this field."""
    return REQUIRED | {"target": {"queue": "default"}} if path in OF_QUEUES else REQUIRED


def defaults_for(path: tuple[str, ...]) -> Any:
    return as_tree(document_of(parsed(as_document(**needed(path)))))


def with_example(path: tuple[str, ...]) -> dict[str, Any]:
    """A document with one more field than it needs, or another value in one that it needs."""
    tree: dict[str, Any] = as_tree(needed(path))
    *above, last = path
    reduce(lambda place, name: place.setdefault(name, {}), above, tree)[last] = EXAMPLES[path]
    return tree


def value_at(tree: Any, path: tuple[str, ...]) -> Any:
    return reduce(lambda place, name: place[name], path, as_tree(tree))


def parsed(document: JobDocument) -> Job:
    parser = new_parser()
    parser.register(as_document(), JOB_ID, TENANT_ID)  # shares nothing with the next one
    return parser.register(document, JOB_ID, TENANT_ID).job


def edited(document: JobDocument) -> JobDocument:
    before = parsed(as_document())
    return document_of(new_parser().edit(before, document).job)


def stored(document: JobDocument) -> JobDocument:
    job = parsed(document)
    row: Any = {
        "job_id": job.job_id,
        "tenant_id": job.tenant_id,
        "name": job.name,
        "tags": encode_tags(job),
        "state": job.state,
        "version": job.version,
        "created_at": job.created_at_us,
        "updated_at": job.updated_at_us,
        "paused_at": None,
        "definition": encode_definition(job),
    }
    assert decode_job(row) == job
    return document_of(decode_job(row))


def drafted(document: JobDocument) -> Any:
    draft = Draft(
        job_id=JOB_ID,
        tenant_id=TENANT_ID,
        name=document.name,
        document=Raw(msgspec.json.encode(document)),
        created_at_us=NOW_US,
        updated_at_us=NOW_US,
    )
    return draft_answer(draft)


def applied(document: JobDocument) -> Any:
    """What `job apply` sends to change the smallest job into this one."""
    smallest = as_document()
    if document.target.claim_within is not None:
        smallest = as_document(target={"queue": "default"})
    before = job_answer(parsed(smallest), NOW_US)
    assert differences(before, document)
    return patch_of(before, document)


LAYERS: dict[str, Layer] = {
    "document": lambda document: document_of(parsed(document)),
    "masked document": lambda document: masked_document_of(parsed(document)),
    "answer": lambda document: job_answer(parsed(document), NOW_US),
    "edit": edited,
    "row": stored,
    "draft": drafted,
    "normal form": normalize_document,
    "patch of a manifest": applied,
    "export": lambda document: sparse(job_answer(parsed(document), NOW_US)),
}


def test_every_field_has_an_example() -> None:
    assert set(leaves(JobDocument)) == EXAMPLES.keys()


def test_no_example_is_a_default() -> None:
    for path, example in EXAMPLES.items():
        assert value_at(defaults_for(path), path) != example, path


def test_the_documented_defaults_are_the_real_ones() -> None:
    documented = dict(documented_defaults(JobDocument))
    required = {("name",), ("schedule",), ("target", "url"), ("target", "queue")}
    assert documented.keys() == EXAMPLES.keys() - required
    assert {path: value_at(defaults_for(path), path) for path in documented} == documented


def test_the_table_has_the_fields_of_the_document() -> None:
    assert tuple(FIELDS) == JobDocument.__struct_fields__


@pytest.mark.parametrize("path", EXAMPLES, ids=".".join)
@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_keeps_every_field(layer: str, path: tuple[str, ...]) -> None:
    kept = LAYERS[layer](as_document(**with_example(path)))
    assert value_at(kept, path) == EXAMPLES[path]


def test_every_field_is_an_option_of_the_command_line() -> None:
    options = {field.path for field in job_options.FIELDS.values()}
    assert options == EXAMPLES.keys() - {("name",)}


def test_every_field_is_known_to_the_client() -> None:
    of_schedule = {("schedule", *path) for path in (("cron",), ("at",), ("every",), ("rrule",))}
    of_schedule |= {("schedule", *path) for path in (("start",), ("end",), ("exclude",))}
    assert set(leaves(JobFields)) - of_schedule == EXAMPLES.keys() - {("schedule",)}
    assert set(get_type_hints(JobChanges)) == set(JobDocument.__struct_fields__)


@pytest.mark.parametrize("path", EXAMPLES, ids=".".join)
def test_documents_share_a_key_only_if_they_differ_in_their_own_fields(
    path: tuple[str, ...],
) -> None:
    is_same = shared_key(as_document(**with_example(path))) == shared_key(as_document())
    assert is_same == (path[0] in {"name", "schedule", "payload", "tags"})


def test_json_of_the_user_is_opaque() -> None:
    assert {"payload", "schedule"} == OPAQUE_FIELDS


def test_every_problem_of_a_document_is_reported_when_it_is_normalized() -> None:
    invalid = as_document(timeout="x", jitter="y", retry={"max": "z"})
    with pytest.raises(InvalidDocument) as refused:
        normalize_document(invalid)
    assert {each.pointer for each in refused.value.errors} == {"/timeout", "/jitter", "/retry/max"}
