"""Under every stage: the SQL of the store, by name.

Invariant: every statement that runs is a `-- name:` block of a file in `store/sql`.
"""

import re
from importlib.resources import files

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(file_name: str) -> dict[str, str]:
    """The statements of one file. A name that is there twice is an error of ours."""
    text = (files(__package__) / "sql" / file_name).read_text("utf-8")
    _, *parts = NAME.split(text)
    names, statements = parts[::2], parts[1::2]
    assert len(set(names)) == len(names), f"{file_name} names a query twice"
    return {
        name: sql.strip().removesuffix(";") for name, sql in zip(names, statements, strict=True)
    }


def query_files() -> list[str]:
    """The names of all files of statements."""
    return sorted(path.name for path in (files(__package__) / "sql").iterdir())
