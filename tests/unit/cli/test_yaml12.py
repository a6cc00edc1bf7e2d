"""Files parsed by the core schema of YAML 1.2, limited to JSON values."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.cli.manifest import read_entries
from wheelsched.cli.yaml12 import read_trees


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.yaml"


def read(file: Path, text: str) -> Any:
    file.write_text(text, "utf-8")
    (tree,) = read_trees(str(file))
    return tree


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("12:30:00", "12:30:00"),
        ("190:20:30.15", "190:20:30.15"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T09:00:00Z", "2026-01-01T09:00:00Z"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("=", "="),
        ("18446744073709551615", 2**64 - 1),
        ('"10"', "10"),
        ("'on'", "on"),
        ("!!str 10", "10"),
    ],
)
def test_a_scalar_is_what_the_core_schema_says(file: Path, written: str, value: object) -> None:
    found = read(file, f"a: {written}")["a"]
    assert (found, type(found)) == (value, type(value))


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, exclude_characters="\x7f")),
        lambda inner: st.dictionaries(st.text("abcdefgh 1:-"), inner) | st.lists(inner),
        max_leaves=10,
    )
)
def test_json_is_read_as_json(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    file = tmp_path_factory.mktemp("trees") / "jobs.json"
    assert read(file, json.dumps({"a": tree})) == {"a": tree}


def test_keys_are_text_as_they_are_written(file: Path) -> None:
    assert read(file, "{on: 1, 010: 2, true: 3, null: 4, 1.50: 5}") == {
        "on": 1,
        "010": 2,
        "true": 3,
        "null": 4,
        "1.50": 5,
    }


def test_merge_keys_do_not_override_explicit_keys(file: Path) -> None:
    tree = read(
        file,
        "base: &base {a: 1, b: 1}\nover: &over {<<: *base, b: 2}\nlast: {<<: *over, a: 3, c: 4}\n",
    )
    assert tree["over"] == {"a": 1, "b": 2}
    assert tree["last"] == {"a": 3, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- name: one\n  name: other\n", "duplicate key 'name'"),
        ("a: {1: x, '1': y}", "duplicate key '1'"),
        ("a: {<<: {b: 1}, <<: {b: 2}}", "duplicate key '<<'"),
        ("a: {? [x] : y}", "keys must be scalars"),
        ("a: .inf", "is not a valid JSON number"),
        ("a: .NaN", "is not a valid JSON number"),
        ("a: 1e999", "is not a valid JSON number"),
        ("a: 12345678901234567890123", "exceeds 64 bits"),
        ("a: " + "9" * 5_000, "exceeds 64 bits"),
        ("a: !!int nine", "is not an integer"),
        ("a: !!bool yes", "is not a boolean"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("a: !!set {x}", "could not determine a constructor"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: " + "[" * 5_000, "nested deeper than 67 levels"),
        ("a: " + "[" * 80 + "]" * 80, "nested deeper than 67 levels"),
        ("a: &a [*a]", "'a' contains itself"),
        ("a: &a {b: {c: *a}}", "'a' contains itself"),
        ("- [", "cannot parse"),
    ],
)
def test_values_that_json_cannot_represent_are_rejected(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(typer.BadParameter, match=says):
        list(read_trees(str(file)))


def laughs(opening: str, closing: str, alias: str) -> str:
    """Each line repeats the previous one ten times: 10^20 nodes in under a kilobyte."""
    lines = [f"x0: &x0 {opening}l: 1{closing}" if alias == "<<: " else "x0: &x0 [lol]"]
    for level in range(1, 21):
        parts = ", ".join([f"*x{level - 1}"] * 10)
        lines.append(
            f"x{level}: &x{level} {opening}{alias}{'[' + parts + ']' if alias else parts}{closing}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    "bomb",
    [
        laughs("[", "]", ""),
        laughs("{", "}", "a: "),
        laughs("{", "}", "<<: "),
        "a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 1_000 + "]",
        "---\n".join(["a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 10 + "]\n"] * 10),
    ],
    ids=["lists", "mappings", "merges", "text", "documents"],
)
def test_alias_expansion_is_limited(file: Path, bomb: str) -> None:
    file.write_text(bomb)
    with pytest.raises(typer.BadParameter, match="expand to more than 4,000,000 characters"):
        list(read_trees(str(file)))


def test_the_depth_of_aliases_is_limited(file: Path) -> None:
    chain = [f"x{level}: &x{level} [*x{level - 1}]" for level in range(1, 100)]
    file.write_text("\n".join(["x0: &x0 [a]", *chain]))
    with pytest.raises(typer.BadParameter, match="nested deeper than 67 levels"):
        list(read_trees(str(file)))


def test_a_thousand_jobs_share_a_common_part(file: Path) -> None:
    common = "- &common {name: a, payload: {text: " + "x" * 1_000 + "}}\n"
    jobs = "".join(f"- {{<<: *common, name: b{number}}}\n" for number in range(1_000))
    file.write_text(common + jobs)
    assert len(list(read_trees(str(file)))) == 1_001


def test_the_file_size_is_limited(file: Path) -> None:
    file.write_text("#" * (16 << 20) + "#")
    with pytest.raises(typer.BadParameter, match="exceeds 16,777,216 characters; split it"):
        list(read_trees(str(file)))


JOB = "- name: a\n  schedule: '@daily'\n  target: {url: 'https://a.b/'}\n  payload: "


def test_a_job_that_is_not_json_is_reported(file: Path) -> None:
    file.write_text(JOB + r'"\ud800"')
    (entry,) = read_entries(str(file))
    (said,) = entry.lines(entry.errors)
    assert said.startswith(f"{file}:1: job 'a': /: cannot be encoded as JSON")


def test_a_payload_is_kept_as_written(file: Path) -> None:
    file.write_text(JOB + "{at: 2026-01-01, on: yes, n: 010, t: 12:30:00}")
    (entry,) = read_entries(str(file))
    assert entry.document is not None
    assert bytes(entry.document.payload) == b'{"at":"2026-01-01","on":"yes","n":10,"t":"12:30:00"}'
