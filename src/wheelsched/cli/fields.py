"""The fields of a job as options: what `job create` and `job update` share.

Invariant: what is not typed is not written; so an update changes what its options name, and a
creation leaves the defaults to the API. None stands for what is to be removed, as in a merge patch.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from wheelsched.cli.commands import with_parameters
from wheelsched.cli.written import read_json, read_pairs, read_payload


class Field(Struct, frozen=True):
    """One option, and the place in the document that it writes."""

    kind: Any
    path: tuple[str, ...]
    meaning: str
    read: Callable[[Any], Any] = lambda value: value


def _read_headers(written: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_pairs(written, ":", "'x-team: a'"))


def _read_tags(written: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_pairs(written, "=", "team=a"))


def _removing_empty(pairs: dict[str, str]) -> dict[str, str | None]:
    return {name: value or None for name, value in pairs.items()}


def _read_schedule(written: str) -> Any:
    if not written.lstrip().startswith("{"):
        return written
    return read_json(written, example='\'{"every": "5m"}\'')


FIELDS: Final = {
    "schedule": Field(
        str,
        ("schedule",),
        "Cron, an ISO-8601 instant, 'in 5m', 'every 5m', 'RRULE:…', or a JSON object.",
        _read_schedule,
    ),
    "timezone": Field(str, ("timezone",), "The time zone of the schedule, as Europe/London."),
    "target": Field(str, ("target", "url"), "The URL to call."),
    "method": Field(str, ("target", "method"), "The HTTP method."),
    "header": Field(
        list[str],
        ("target", "headers"),
        "'NAME: VALUE'; 'NAME:' removes it; repeatable.",
        _read_headers,
    ),
    "batch": Field(int, ("target", "batch"), "How many runs go in one request."),
    "payload": Field(str, ("payload",), "JSON, or @FILE; sent byte for byte.", read_payload),
    "misfire": Field(str, ("misfire", "policy"), "Of missed times: once, all or skip."),
    "overlap": Field(str, ("overlap", "policy"), "Of runs at once: skip, queue, allow or cancel."),
    "max_attempts": Field(int, ("retry", "max_attempts"), "How often a run is tried."),
    "timeout": Field(str, ("timeout",), "How long an attempt may take, as 120s."),
    "jitter": Field(str, ("jitter",), "A deliberate delay of up to so much, as 30s."),
    "priority": Field(int, ("priority",), "Which of its tenant's runs go first."),
    "idempotency_key": Field(str, ("idempotency_key",), "Its key, with {{…}} in it."),
    "tag": Field(list[str], ("tags",), "NAME=VALUE; NAME= removes it; repeatable.", _read_tags),
}


def takes_fields(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that is given what was typed of a job as `fields`."""

    def run(**given: Any) -> Any:
        typed = {name: given.pop(name) for name in FIELDS}
        return command(fields=document_of(typed), **given)

    parameters = dict(inspect.signature(command).parameters)
    del parameters["fields"]
    parameters |= {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[field.kind | None, typer.Option(help=field.meaning)],
        )
        for name, field in FIELDS.items()
    }
    return with_parameters(run, command, parameters)


def document_of(typed: dict[str, Any]) -> dict[str, Any]:
    """The part of a document that options write."""
    document: dict[str, Any] = {}
    for name, value in typed.items():
        if value is None or value == []:
            continue
        field = FIELDS[name]
        *above, last = field.path
        place = document
        for step in above:
            place = place.setdefault(step, {})
        place[last] = field.read(value)
    return document


def written_over(document: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A document with what was typed in the place of what was there."""
    written = dict(document)
    for name, value in fields.items():
        if value is None:
            written.pop(name, None)
        elif isinstance(value, dict):
            below = written.get(name)
            written[name] = written_over(below if isinstance(below, dict) else {}, value)
        else:
            written[name] = value
    return written
