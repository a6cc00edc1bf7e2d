"""Loads the SQL of the store by name.

Invariant: every statement that runs is a `-- name:` block of a file in `store/sql`. A part
that several statements share is a `-- fragment:` block of `fragments.sql`; a statement includes it
as `{{fragment}}`.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final

FRAGMENTS_FILE: Final = "fragments.sql"
_STATEMENT: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT: Final = re.compile(r"^-- fragment: (\w+)$", re.MULTILINE)
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")
_COMMENT_LINE: Final = re.compile(r"^--.*\n", re.MULTILINE)


class InvalidQueryFile(ValueError):
    """A file of statements names something twice, or uses a fragment that does not exist."""


def load_queries(file_name: str) -> dict[str, str]:
    """The statements of one file, with their fragments filled in."""
    blocks = _split(_read(file_name), _STATEMENT, file_name)
    return {
        name: fill_in(sql.removesuffix(";"), load_fragments(), file_name)
        for name, sql in blocks.items()
    }


@cache
def load_fragments() -> dict[str, str]:
    """The fragments, without their comments; a fragment may use others."""
    blocks = _split(_read(FRAGMENTS_FILE), _FRAGMENT, FRAGMENTS_FILE)
    return {name: _COMMENT_LINE.sub("", text).strip() for name, text in blocks.items()}


def fill_in(sql: str, fragments: dict[str, str], file_name: str) -> str:
    """The text with each placeholder replaced by its fragment, or `InvalidQueryFile`."""

    def replacement(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name not in fragments:
            raise InvalidQueryFile(f"{file_name} uses the unknown fragment {name!r}")
        return fill_in(fragments[name], fragments, FRAGMENTS_FILE)

    return _PLACEHOLDER.sub(replacement, sql)


def query_files() -> list[str]:
    """The names of all files of statements."""
    names = (path.name for path in (files("wheelsched.store") / "sql").iterdir())
    return sorted(name for name in names if name != FRAGMENTS_FILE)


def _read(file_name: str) -> str:
    return (files("wheelsched.store") / "sql" / file_name).read_text("utf-8")


def _split(text: str, heading: re.Pattern[str], file_name: str) -> dict[str, str]:
    """The blocks of a file by the names in their headings."""
    _, *parts = heading.split(text)
    blocks: dict[str, str] = {}
    for name, block in zip(parts[::2], parts[1::2], strict=True):
        if name in blocks:
            raise InvalidQueryFile(f"{file_name} has two blocks named {name!r}")
        blocks[name] = block.strip()
    return blocks
