"""Every statement of `store/sql` is used by the program, and every fragment by a statement."""

import re
from pathlib import Path

import pytest

import wheelsched.store
from wheelsched.store.connections.queries import (
    InvalidQueryFile,
    fill_in,
    load_fragments,
    load_queries,
    query_files,
)

STORE = Path(wheelsched.store.__file__).parent
PROGRAM = "\n".join(path.read_text() for path in STORE.rglob("*.py"))
LOCK = "FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE"


@pytest.mark.parametrize("file_name", query_files())
def test_no_statement_is_unused(file_name: str) -> None:
    for name in load_queries(file_name):
        assert f'["{name}"]' in PROGRAM, f"{name} of {file_name} is used nowhere"


def test_no_fragment_is_unused() -> None:
    text = "\n".join(path.read_text() for path in STORE.glob("sql/*.sql"))
    assert set(load_fragments()) == set(re.findall(r"\{\{(\w+)\}\}", text))


def test_the_fence_is_written_once() -> None:
    text = "\n".join(path.read_text() for path in STORE.glob("sql/*.sql"))
    assert text.count("FOR KEY SHARE") - text.count("ORDER BY job_id FOR KEY SHARE") == 1


def test_twelve_statements_begin_with_the_fence() -> None:
    fenced = {
        name
        for file_name in query_files()
        for name, sql in load_queries(file_name).items()
        if LOCK in sql
    }
    assert fenced == {
        *("acquire", "take_over", "take_over_gone", "plan", "clear", "adopt"),
        *("arm", "arm_missed", "arm_retries"),
        *("advance_live_since", "finish_jobs", "pause_gone_jobs"),
    }


@pytest.mark.parametrize("file_name", query_files())
def test_no_placeholder_is_left(file_name: str) -> None:
    for sql in load_queries(file_name).values():
        assert "{{" not in sql


def test_a_fragment_may_use_another() -> None:
    fragments = {"lock": "FOR UPDATE", "row": "SELECT 1 {{lock}}"}
    assert fill_in("({{row}})", fragments, "x.sql") == "(SELECT 1 FOR UPDATE)"


def test_an_unknown_fragment_is_an_error() -> None:
    with pytest.raises(InvalidQueryFile, match=r"x\.sql uses the unknown fragment 'fense'"):
        fill_in("WITH {{fense}}", {"fence": ""}, "x.sql")


def test_no_line_is_too_long_to_read() -> None:
    for path in (*STORE.glob("sql/*.sql"), *STORE.glob("migrations/*.sql")):
        longest = max(path.read_text().splitlines(), key=len)
        assert len(longest) <= 100, f"{path.name}: {longest}"


def test_no_statement_is_written_in_python() -> None:
    """Statements begin with these words, and prose does not write them in capitals."""
    found = re.findall(r'"[^"\n]*\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM)\b[^"\n]*"', PROGRAM)
    assert found == []
