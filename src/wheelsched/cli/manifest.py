"""Manifests: files of jobs, and how they differ from the registered jobs.

Invariant: two documents that define the same job have no differences, however they are written:
`60s` equals `1m`, and an omitted field equals its default.

A manifest is YAML (or JSON): a list of job documents, alone or under the key `jobs`; a single
document; or several of these.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.cli.yaml12 import line_of, read_trees
from wheelsched.core.targets.sensitive import MASK, is_sensitive, mask_headers
from wheelsched.core.targets.target import HEADERS_POINTER
from wheelsched.errors import InvalidDocument, InvalidField
from wheelsched.jobs.fields import OPAQUE_FIELDS, normalize_document
from wheelsched.schedule.relative import is_relative
from wheelsched.values.counting import counted
from wheelsched.values.fields import display_value, escape_pointer
from wheelsched.wire.job import JobAnswer, JobDocument
from wheelsched.wire.strict import read_strictly

DOCUMENT: Final = msgspec.json.Decoder(JobDocument)
MAX_PROBLEMS_SHOWN: Final = 100


class Difference(Struct, frozen=True, kw_only=True):
    """A field whose value would change."""

    field: str
    before: Any
    after: Any


class Entry(Struct, frozen=True, kw_only=True):
    """One job of a file, with its position and the problems found so far.

    `file_errors` are problems that a request with the same document would not have.
    """

    path: str
    number: int
    tree: Any
    document: JobDocument | None = None
    errors: tuple[InvalidField, ...] = ()
    file_errors: tuple[InvalidField, ...] = ()

    def lines(self, errors: Iterable[InvalidField]) -> list[str]:
        """One line per problem, with file, line and job."""
        named = self.tree.get("name") if isinstance(self.tree, dict) else None
        which = f"job {named!r}" if isinstance(named, str) else f"job {self.number}"
        found = []
        for error in errors:
            line = line_of(self.tree, error.pointer)
            place = self.path if line is None else f"{self.path}:{line}"
            found.append(f"{place}: {which}: {error.pointer or '/'}: {error}")
        return found


def read_entries(path: str) -> list[Entry]:
    """The jobs of a file, each with its document or its problems."""
    entries: list[Entry] = []
    names: set[str] = set()
    for number, tree in enumerate(read_trees(path), 1):
        errors: tuple[InvalidField, ...] = ()
        if isinstance(tree, dict):
            errors = tuple(_problems_in_file(tree, names))
            if isinstance(name := tree.get("name"), str):
                names.add(name)
        place = "stdin" if path == "-" else path
        entries.append(_read(Entry(path=place, number=number, tree=tree, file_errors=errors)))
    return entries


def _read(entry: Entry) -> Entry:
    """The entry with its document, or with the problems of its document."""
    try:
        document = read_strictly(msgspec.json.encode(entry.tree), DOCUMENT)
    except InvalidDocument as error:
        return replace(entry, errors=error.errors)
    except InvalidField as error:
        return replace(entry, errors=(error,))
    except (ValueError, RecursionError) as error:  # a lone surrogate
        return replace(entry, errors=(InvalidField(f"cannot be encoded as JSON: {error}"),))
    return replace(entry, document=document)


def raise_problems(problems: list[str]) -> None:
    """Raises one error that lists all problems, if there are any."""
    if problems:
        heading = f"nothing was changed; found {counted(len(problems), 'problem')}:"
        more = (
            [f"and {len(problems) - MAX_PROBLEMS_SHOWN:,} more"]
            if len(problems) > MAX_PROBLEMS_SHOWN
            else []
        )
        raise InvalidDocument("\n".join([heading, *problems[:MAX_PROBLEMS_SHOWN], *more]))


def _problems_in_file(tree: dict[str, Any], names: Collection[str]) -> Iterator[InvalidField]:
    """Problems that a job has only because it is in a file."""
    name, schedule = tree.get("name"), tree.get("schedule")
    if isinstance(name, str) and name in names:
        yield InvalidField(f"duplicate name {name!r}", pointer="/name")
    if is_relative(schedule):
        yield InvalidField(
            f"{display_value(schedule)} is relative to now, so every apply would move the job; "
            "write an absolute time, e.g. 2026-03-08T09:30:00Z, or use `wheelsched job create`",
            pointer="/schedule",
        )


def read_one(path: str) -> dict[str, Any]:
    """The only document of a file."""
    trees = list(read_trees(path))
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise typer.BadParameter(
            f"{path} contains {len(trees)} jobs, expected one; use `wheelsched job apply -f`"
        )
    return trees[0]


def differences(
    before: JobAnswer, after: JobDocument, hidden: Collection[str] = ()
) -> list[Difference]:
    """The fields in which a document differs from a job.

    The API compares the values of sensitive headers, and `hidden` lists those that differ; here
    they stay masked.
    """
    old, new = flat(tree_of(before)), flat(plain(_masked(normalize_document(after), hidden)))
    return [
        Difference(field=field, before=old.get(field), after=new.get(field))
        for field in sorted(old.keys() | new.keys())
        if not is_same(old.get(field), new.get(field))
    ]


def _masked(document: JobDocument, changed: Collection[str]) -> JobDocument:
    """The document with sensitive headers masked, for printing."""
    if document.target.headers is None:
        return document
    headers = mask_headers(document.target.headers)
    for name in headers:
        if f"{HEADERS_POINTER}/{escape_pointer(name)}" in changed:
            headers[name] = f"{MASK} (changed)"
    return replace(document, target=replace(document.target, headers=headers))


def has_hidden_values(document: JobDocument) -> bool:
    """True if only the API can tell whether the document differs from the registered job."""
    headers = document.target.headers or {}
    return any(is_sensitive(name) and value != MASK for name, value in headers.items())


def patch_of(before: JobAnswer, after: JobDocument) -> dict[str, Any]:
    """The merge patch that turns the job into the document."""
    old, new = tree_of(before), plain(normalize_document(after))
    return {
        name: value if name in OPAQUE_FIELDS else merge_patch(old[name], value)
        for name, value in new.items()
        if not is_same(old[name], value)
    }


def tree_of(job: JobAnswer) -> dict[str, Any]:
    """The document of a job, as a tree."""
    fields = {name: getattr(job, name) for name in JobDocument.__struct_fields__}
    return plain(JobDocument(**fields))


def plain(document: JobDocument) -> dict[str, Any]:
    """The document as a tree."""
    tree: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return tree


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree flattened to one level, except for opaque values."""
    fields: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and name not in OPAQUE_FIELDS:
            fields |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            fields[name] = value
    return fields


def is_same(one: Any, other: Any) -> bool:
    """Compares as JSON: in Python, 1 equals True and 1.0."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def merge_patch(before: Any, after: Any) -> Any:
    """The patch that turns `before` into `after` (RFC 7396)."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    patch = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        if name not in before or before[name] != value:
            patch[name] = merge_patch(before.get(name), value)
    return patch
