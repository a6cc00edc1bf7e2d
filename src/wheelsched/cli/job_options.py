"""The fields of a job as command-line options, shared by `job create` and `job update`.

Invariant: an omitted option writes nothing, so an update changes only the given fields, and the API
fills in the defaults of a new job. None removes a field, as in a merge patch.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from wheelsched.cli.option_parsers import (
    read_instant,
    read_json,
    read_pairs,
    read_payload,
    read_tags,
)
from wheelsched.cli.shared import with_parameters


class Field(Struct, frozen=True):
    """One option, and the field of the document that it sets."""

    kind: Any
    path: tuple[str, ...]
    help: str
    read: Callable[[Any], Any] = lambda value: value


def _read_headers(headers: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_pairs(headers, ":", "'x-team: a'"))


def _read_tags(tags: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_tags(tags))


def _removing_empty(pairs: dict[str, str]) -> dict[str, str | None]:
    return {name: value or None for name, value in pairs.items()}


def _read_schedule(text: str) -> Any:
    if text.startswith("in "):
        due = read_instant(text)
        return (due + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
    if not text.lstrip().startswith("{"):
        return text
    return read_json(text, example='\'{"every": "5m"}\'')


FIELDS: Final = {
    "schedule": Field(
        str,
        ("schedule",),
        "Cron expression, ISO 8601 time, 'in 5m', 'every 5m', 'RRULE:…', or a JSON object.",
        _read_schedule,
    ),
    "timezone": Field(str, ("timezone",), "Time zone of the schedule, e.g. Europe/London."),
    "target": Field(str, ("target", "url"), "URL to call."),
    "method": Field(str, ("target", "method"), "HTTP method."),
    "header": Field(
        list[str],
        ("target", "headers"),
        "Header as 'NAME: VALUE'; 'NAME:' removes it; repeatable.",
        _read_headers,
    ),
    "batch": Field(int, ("target", "batch"), "Maximum runs per request."),
    "queue": Field(
        str, ("target", "queue"), "Queue from which workers take the runs, in place of --target."
    ),
    "claim_within": Field(
        str, ("target", "claim_within"), "How long a run waits for a worker of its queue, e.g. 1h."
    ),
    "payload": Field(
        str, ("payload",), "Payload as JSON or @FILE; sent byte for byte.", read_payload
    ),
    "misfire": Field(str, ("misfire", "policy"), "What to do with missed runs: once, all or skip."),
    "misfire_grace": Field(
        str, ("misfire", "grace"), "Maximum lateness of a run that counts as on time, e.g. 60s."
    ),
    "misfire_window": Field(
        str, ("misfire", "window"), "Maximum lateness of a run that is still caught up, e.g. 1h."
    ),
    "max_missed": Field(
        int,
        ("misfire", "max_missed"),
        "Maximum number of missed runs to catch up with --misfire all.",
    ),
    "overlap": Field(
        str,
        ("overlap", "policy"),
        "What to do when an earlier run is unfinished: skip, queue, allow or cancel.",
    ),
    "max_concurrent": Field(
        int, ("overlap", "max_concurrent"), "Maximum number of unfinished runs of the job."
    ),
    "max_attempts": Field(int, ("retry", "max_attempts"), "Maximum attempts per run."),
    "backoff": Field(
        str,
        ("retry", "backoff"),
        "How the wait between attempts grows: exponential, linear or fixed.",
    ),
    "backoff_initial": Field(
        str, ("retry", "initial"), "Maximum wait before the second attempt, e.g. 1s."
    ),
    "backoff_max": Field(str, ("retry", "max"), "Maximum wait between two attempts, e.g. 5m."),
    "timeout": Field(str, ("timeout",), "Timeout of an attempt, e.g. 120s."),
    "jitter": Field(str, ("jitter",), "Random delay of up to this long, e.g. 30s."),
    "priority": Field(int, ("priority",), "Runs with a higher priority are sent first."),
    "dst_gap": Field(str, ("dst", "gap"), "Due times skipped by a clock change: shift or skip."),
    "dst_overlap": Field(
        str, ("dst", "overlap"), "Due times repeated by a clock change: first, last or both."
    ),
    "idempotency_key": Field(
        str, ("idempotency_key",), "Template of the idempotency key, e.g. '{{job_id}}:{{date}}'."
    ),
    "tag": Field(
        list[str], ("tags",), "Tag as NAME=VALUE; NAME= removes it; repeatable.", _read_tags
    ),
}


def with_job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the job options to a command, which receives them as `fields`."""

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
            annotation=Annotated[field.kind | None, typer.Option(help=field.help)],
        )
        for name, field in FIELDS.items()
    }
    return with_parameters(run, command, parameters)


def document_of(typed: dict[str, Any]) -> dict[str, Any]:
    """The partial document that options describe."""
    document: dict[str, Any] = {}
    for name, value in typed.items():
        if value is None or value == []:
            continue
        field = FIELDS[name]
        *parents, last = field.path
        place = document
        for step in parents:
            place = place.setdefault(step, {})
        place[last] = field.read(value)
    return document


def overlay(document: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the given fields replaced."""
    merged = dict(document)
    for name, value in fields.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = overlay(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged
