"""The fields of a job as options: what `job create` and `job update` share.

Invariant: what is not typed is not written; so an update changes what its options name, and a
creation leaves the defaults to the API. None stands for what is to be removed, as in a merge patch.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from wheelsched.cli.commands import with_parameters
from wheelsched.cli.written import read_instant, read_json, read_pairs, read_payload, read_tags


class Field(Struct, frozen=True):
    """One option, and the place in the document that it writes."""

    kind: Any
    path: tuple[str, ...]
    meaning: str
    read: Callable[[Any], Any] = lambda value: value


def _read_headers(written: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_pairs(written, ":", "'x-team: a'"))


def _read_tags(written: list[str]) -> dict[str, str | None]:
    return _removing_empty(read_tags(written))


def _removing_empty(pairs: dict[str, str]) -> dict[str, str | None]:
    return {name: value or None for name, value in pairs.items()}


def _read_schedule(written: str) -> Any:
    if written.startswith("in "):
        due = read_instant(written)
        return (due + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
    if not written.lstrip().startswith("{"):
        return written
    return read_json(written, example='\'{"every": "5m"}\'')


FIELDS: Final = {
    "schedule": Field(
        str,
        ("schedule",),
        "Cron, an ISO-8601 time, 'in 5m', 'every 5m', 'RRULE:…', or a JSON object.",
        _read_schedule,
    ),
    "timezone": Field(str, ("timezone",), "Time zone of the schedule, e.g. Europe/London."),
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
    "misfire": Field(str, ("misfire", "policy"), "What to do with missed runs: once, all or skip."),
    "misfire_grace": Field(
        str, ("misfire", "grace"), "How late a run still counts as on time, e.g. 60s."
    ),
    "misfire_window": Field(
        str, ("misfire", "window"), "How late a missed run may still be caught up, e.g. 1h."
    ),
    "max_missed": Field(
        int, ("misfire", "max_missed"), "How many missed runs to catch up with --misfire all."
    ),
    "overlap": Field(
        str,
        ("overlap", "policy"),
        "What to do when an earlier run is unfinished: skip, queue, allow or cancel.",
    ),
    "max_concurrent": Field(
        int, ("overlap", "max_concurrent"), "How many runs of the job may be unfinished at once."
    ),
    "max_attempts": Field(int, ("retry", "max_attempts"), "How often a run is tried."),
    "backoff": Field(
        str,
        ("retry", "backoff"),
        "How the wait between attempts grows: exponential, linear or fixed.",
    ),
    "backoff_initial": Field(
        str, ("retry", "initial"), "Longest wait before the second attempt, e.g. 1s."
    ),
    "backoff_max": Field(str, ("retry", "max"), "Longest wait between two attempts, e.g. 5m."),
    "timeout": Field(str, ("timeout",), "How long an attempt may take, e.g. 120s."),
    "jitter": Field(str, ("jitter",), "Random delay of up to this long, e.g. 30s."),
    "priority": Field(int, ("priority",), "Runs with a higher priority go first."),
    "dst_gap": Field(
        str, ("dst", "gap"), "A due time that clocks skip going forward: shift or skip."
    ),
    "dst_overlap": Field(
        str, ("dst", "overlap"), "A due time that clocks repeat going back: first, last or both."
    ),
    "idempotency_key": Field(
        str, ("idempotency_key",), "Template of the key, e.g. '{{job_id}}:{{scheduled_at_unix}}'."
    ),
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
