"""Every statement of `store/sql` is used by the program that names it."""

import re
from pathlib import Path

import pytest

import wheelsched.store
from wheelsched.store.queries import load_queries, query_files

PROGRAM = "\n".join(
    path.read_text() for path in Path(wheelsched.store.__file__).parent.glob("*.py")
)


@pytest.mark.parametrize("file_name", query_files())
def test_no_statement_is_unused(file_name: str) -> None:
    for name in load_queries(file_name):
        assert f'["{name}"]' in PROGRAM, f"{name} of {file_name} is used nowhere"


def test_no_line_is_too_long_to_read() -> None:
    store = Path(wheelsched.store.__file__).parent
    for path in (*store.glob("sql/*.sql"), *store.glob("migrations/*.sql")):
        longest = max(path.read_text().splitlines(), key=len)
        assert len(longest) <= 100, f"{path.name}: {longest}"


def test_no_statement_is_written_in_python() -> None:
    """Statements begin with these words, and prose does not write them in capitals."""
    found = re.findall(r'"[^"\n]*\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM)\b[^"\n]*"', PROGRAM)
    assert found == []
