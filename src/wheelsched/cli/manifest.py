"""Files of jobs: reading them, and comparing them with what is registered.

Invariant: two documents that make the same job have no differences, however they are written:
`60s` is `1m`, and what is not written is its default.

A file is YAML, and so JSON too: a list of job documents, alone or under the key `jobs`; one
document; or several of any.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast
from uuid import UUID

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.api.answers import document_of
from wheelsched.api.judging import NO_JITTER, judge_policies
from wheelsched.cli.trees import line_of, read_trees
from wheelsched.core.duration import parse_duration
from wheelsched.core.fields import escaped, shown
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, Job, Target
from wheelsched.core.relative import is_relative
from wheelsched.core.sensitive import MASK, is_sensitive, mask_headers
from wheelsched.core.spec import DstGap, DstOverlap, Spec
from wheelsched.core.target import HEADERS_POINTER
from wheelsched.errors import InvalidDocument, InvalidField
from wheelsched.wire.job import DstDocument, JobAnswer, JobDocument
from wheelsched.wire.strict import read_strictly

DOCUMENT: Final = msgspec.json.Decoder(JobDocument)
SHOWN: Final = 100  # problems of a file
NOBODY: Final = UUID(int=0)
VALUES: Final = ("payload", "schedule")  # what is in them is not ours: they change as one


class Difference(Struct, frozen=True, kw_only=True):
    """A field that is one thing and is to be another."""

    field: str
    before: Any
    after: Any


class Entry(Struct, frozen=True, kw_only=True):
    """A job of a file: where it is written, and what is wrong with it so far."""

    path: str
    number: int
    tree: Any
    document: JobDocument | None = None
    errors: tuple[InvalidField, ...] = ()

    def lines(self, errors: Iterable[InvalidField]) -> list[str]:
        """What is wrong with it, and where: a line for each."""
        named = self.tree.get("name") if isinstance(self.tree, dict) else None
        which = f"job {named!r}" if isinstance(named, str) else f"job number {self.number}"
        found = []
        for error in errors:
            line = line_of(self.tree, error.pointer)
            place = self.path if line is None else f"{self.path}:{line}"
            found.append(f"{place}: {which}: {error.pointer or '/'}: {error}")
        return found


def read_entries(path: str) -> list[Entry]:
    """The jobs of a file, each with its document or with what is wrong with it."""
    entries: list[Entry] = []
    names: set[str] = set()
    for number, tree in enumerate(read_trees(path), 1):
        entry = Entry(path="stdin" if path == "-" else path, number=number, tree=tree)
        try:
            document = read_strictly(msgspec.json.encode(tree), DOCUMENT)
        except InvalidDocument as error:
            entries.append(replace(entry, errors=error.errors))
        except InvalidField as error:
            entries.append(replace(entry, errors=(error,)))
        except (ValueError, RecursionError) as error:  # half of a character
            entries.append(replace(entry, errors=(InvalidField(f"is not JSON: {error}"),)))
        else:
            errors = tuple(_problems_in_file(document, names))
            names.add(document.name)
            entries.append(replace(entry, document=document, errors=errors))
    return entries


def refuse(problems: list[str]) -> None:
    """Ends the command with everything that is wrong, if anything is."""
    if problems:
        heading = f"nothing was changed, because of {len(problems):,} problem(s):"
        more = [f"and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
        raise InvalidDocument("\n".join([heading, *problems[:SHOWN], *more]))


def _problems_in_file(document: JobDocument, names: Collection[str]) -> Iterator[InvalidField]:
    """What is wrong with a job in a file, and would not be in a request."""
    if document.name in names:
        yield InvalidField(f"{document.name!r} is there twice", pointer="/name")
    schedule = msgspec.json.decode(document.schedule)
    if is_relative(schedule):
        yield InvalidField(
            f"{shown(schedule)} counts from the moment of the request, so every apply would move "
            "the job; write the instant, e.g. 2026-03-08T09:30:00Z, or use `wheelsched job create`",
            pointer="/schedule",
        )


def read_one(path: str) -> dict[str, Any]:
    """The one document of a file."""
    trees = list(read_trees(path))
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise typer.BadParameter(
            f"{path} holds {len(trees)} jobs, not one; use `wheelsched job apply -f`"
        )
    return trees[0]


def differences(
    before: JobAnswer, after: JobDocument, hidden: Collection[str] = ()
) -> list[Difference]:
    """The fields in which a document differs from a job.

    Values of sensitive headers are compared by the API, which names in `hidden` those that differ;
    here they stay masked.
    """
    old, new = flat(written_of(before)), flat(plain(_masked(complete(after), hidden)))
    return [
        Difference(field=field, before=old.get(field), after=new.get(field))
        for field in sorted(old.keys() | new.keys())
        if not is_same(old.get(field), new.get(field))
    ]


def _masked(document: JobDocument, changed: Collection[str]) -> JobDocument:
    """A document that may be printed."""
    headers = mask_headers(document.target.headers or {})
    for name in headers:
        if f"{HEADERS_POINTER}/{escaped(name)}" in changed:
            headers[name] = f"{MASK} (changed)"
    return replace(document, target=replace(document.target, headers=headers))


def has_hidden_values(document: JobDocument) -> bool:
    """Whether only the API can tell if the document differs from the job of its name."""
    headers = document.target.headers or {}
    return any(is_sensitive(name) and value != MASK for name, value in headers.items())


def patch_of(before: JobAnswer, after: JobDocument) -> dict[str, Any]:
    """The patch by which the API makes one of the other."""
    old, new = written_of(before), plain(complete(after))
    return {
        name: value if name in VALUES else merge_patch(old[name], value)
        for name, value in new.items()
        if not is_same(old[name], value)
    }


def written_of(job: JobAnswer) -> dict[str, Any]:
    """What of a job somebody wrote, as a tree."""
    fields = {name: getattr(job, name) for name in JobDocument.__struct_fields__}
    return plain(JobDocument(**fields))


def complete(document: JobDocument) -> JobDocument:
    """A document with every default written out, and every duration in one way."""
    policies = judge_policies(
        document.misfire, document.overlap, document.retry, document.timeout, document.priority
    )
    dst = document.dst or DstDocument()
    target = document.target
    return document_of(
        Job(
            job_id=NOBODY,
            tenant_id=NOBODY,
            name=document.name,
            schedule=document.schedule,
            spec=Spec(
                kind="at",  # whichever: what the schedule means is not compared, but its text
                expression="",
                timezone=document.timezone or "UTC",
                dst_gap=cast("DstGap", dst.gap or "shift"),
                dst_overlap=cast("DstOverlap", dst.overlap or "first"),
                jitter_us=parse_duration(document.jitter or NO_JITTER, pointer="/jitter"),
            ),
            anchor_us=0,
            target=Target(
                url=target.url,
                method=target.method or "POST",
                headers=target.headers or {},
                batch=target.batch or 1,
            ),
            payload=document.payload,
            misfire=policies.misfire,
            overlap=policies.overlap,
            retry=policies.retry,
            timeout_us=policies.timeout_us,
            priority=policies.priority,
            idempotency_key=document.idempotency_key or DEFAULT_IDEMPOTENCY_KEY,
            tags=document.tags or {},
            created_at_us=0,
            updated_at_us=0,
        )
    )


def plain(document: JobDocument) -> dict[str, Any]:
    """A document as a tree."""
    tree: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return tree


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A tree with one level, except for what is the user's own."""
    fields: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and name not in VALUES:
            fields |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            fields[name] = value
    return fields


def is_same(one: Any, other: Any) -> bool:
    """As JSON: in Python 1 is True, and 1.0 too."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def merge_patch(before: Any, after: Any) -> Any:
    """What merged into `before` gives `after` (RFC 7396)."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        if name not in before or before[name] != value:
            patch[name] = merge_patch(before.get(name), value)
    return patch
