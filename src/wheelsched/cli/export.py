"""Jobs as a file that `job apply` takes back.

Invariant: applying what was exported changes nothing. A field that has its default is left out.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from wheelsched.cli.manifest import VALUES, complete, is_same, plain, written_of
from wheelsched.cli.trees import RESOLVED
from wheelsched.wire.job import JobAnswer, JobDocument, TargetDocument

WIDTH: Final = 100


class Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 or 1.2 would read as anything but text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for tag, pattern, first in RESOLVED:
    Dumper.add_implicit_resolver(tag, re.compile(pattern), first)


def manifest_of(jobs: Iterable[JobAnswer]) -> dict[str, Any]:
    """The file of some jobs."""
    return {"jobs": [sparse(job) for job in jobs]}


def to_yaml(manifest: dict[str, Any]) -> str:
    """A file as YAML, with no character in it that a terminal would obey."""
    text = _dump(manifest, allow_unicode=True)
    is_safe = all(line.isprintable() for line in text.split("\n"))
    return text if is_safe else _dump(manifest, allow_unicode=False)


def _dump(manifest: dict[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        manifest, Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode, width=WIDTH
    )
    return text


def sparse(job: JobAnswer) -> dict[str, Any]:
    """The document of a job without the fields that have their default."""
    target = TargetDocument(url=job.target.url)
    needed = JobDocument(name=job.name, schedule=job.schedule, target=target)
    defaults = plain(complete(needed))
    document: dict[str, Any] = {}
    for name, value in written_of(job).items():
        if name in ("name", "schedule"):
            document[name] = value
        elif is_same(value, defaults[name]) and name != "target":
            continue
        elif isinstance(value, dict) and name not in VALUES:
            document[name] = _differing(value, defaults[name])
        else:
            document[name] = value
    document["target"] = {"url": job.target.url} | document["target"]
    return document


def _differing(value: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each
        for name, each in value.items()
        if each is not None and not is_same(each, default.get(name))
    }
