"""Exports jobs as a file for `job apply`.

Invariant: applying an exported file changes nothing. Fields with their default value are omitted.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from wheelsched.cli.manifest import is_same, plain, tree_of
from wheelsched.cli.yaml12 import RESOLVED
from wheelsched.jobs.fields import OPAQUE_FIELDS, normalize_document
from wheelsched.wire.job import JobAnswer, JobDocument, TargetDocument

WIDTH: Final = 100


class Dumper(yaml.SafeDumper):
    """Quotes strings that YAML 1.1 or 1.2 would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for tag, pattern, first in RESOLVED:
    Dumper.add_implicit_resolver(tag, re.compile(pattern), first)


def manifest_of(jobs: Iterable[JobAnswer]) -> dict[str, Any]:
    """The manifest of some jobs."""
    return {"jobs": [sparse(job) for job in jobs]}


def to_yaml(manifest: dict[str, Any]) -> str:
    """The manifest as YAML, without characters that a terminal would interpret."""
    text = _dump(manifest, allow_unicode=True)
    is_safe = all(line.isprintable() for line in text.split("\n"))
    return text if is_safe else _dump(manifest, allow_unicode=False)


def _dump(manifest: dict[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        manifest, Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode, width=WIDTH
    )
    return text


def sparse(job: JobAnswer) -> dict[str, Any]:
    """The document of a job without the fields that have their default value."""
    target = TargetDocument(url=job.target.url, queue=job.target.queue)
    needed = JobDocument(name=job.name, schedule=job.schedule, target=target)
    defaults = plain(normalize_document(needed))
    document: dict[str, Any] = {}
    for name, value in tree_of(job).items():
        if name in ("name", "schedule"):
            document[name] = value
        elif is_same(value, defaults[name]) and name != "target":
            continue
        elif isinstance(value, dict) and name not in OPAQUE_FIELDS:
            document[name] = _differing(value, defaults[name])
        else:
            document[name] = value
    document["target"] = plain(needed)["target"] | document["target"]
    return document


def _differing(value: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each
        for name, each in value.items()
        if each is not None and not is_same(each, default.get(name))
    }
