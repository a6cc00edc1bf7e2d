"""What the documents say is run: every Python block, and every command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALL_DOCUMENTS = [*DOCUMENTS, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]

# A path of the repository in backticks: `shard/arming/arm.py`, `core/policies/misfire`, `shard/`.
PATH = re.compile(r"(?<!`)`([a-z_]\w*/(?:[\w.-]+/)*[\w.-]*)`(?!`)")
ROOTS = [
    *(ROOT, ROOT / "src", ROOT / "src" / "wheelsched"),
    *(ROOT / "tests", ROOT / "benchmarks", ROOT / "docs"),
]
SUFFIXES = ["", ".py", ".pyx", ".sql"]
NOT_PATHS = {"application/json", "benchmarks/results/"}

# Run elsewhere: `make test` is what runs this test, test_packaging installs the package, and
# test_readme runs `up` and what needs it.
RUN_ELSEWHERE = {"make test", 'pip install ".[embedded]"', "wheelsched up"}
NEEDS_A_STACK = ("web.run_app(", "SyncClient.from_environment()")


def blocks(language: str) -> list[tuple[str, str]]:
    """The fenced blocks of that language in all documents, each with a name."""
    fenced = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (f"{document.name}-{number}", block)
        for document in DOCUMENTS
        for number, block in enumerate(fenced.findall(document.read_text()))
    ]


def commands() -> list[str]:
    return [line for _, block in blocks("sh") for line in block.splitlines()]


def python_blocks() -> list[tuple[str, str]]:
    """Those that run by themselves."""
    return [
        (name, text)
        for name, text in blocks("python")
        if not (name.startswith("README") and any(each in text for each in NEEDS_A_STACK))
    ]


@pytest.mark.proof
@pytest.mark.parametrize("block", [pytest.param(text, id=name) for name, text in python_blocks()])
def test_python_in_a_document_runs(block: str) -> None:
    subprocess.run([sys.executable, "-c", block], check=True, cwd=ROOT, timeout=120)


@pytest.mark.proof
@pytest.mark.parametrize("command", [each for each in commands() if each not in RUN_ELSEWHERE])
def test_a_command_in_a_document_runs(command: str) -> None:
    subprocess.run(command.split(), check=True, cwd=ROOT, timeout=600)


def test_the_two_commands_are_there() -> None:
    assert {"make demo", "make test"} <= set(commands())


def test_make_commands_in_documents_exist() -> None:
    """Those inside a sentence are not run, but what they name has to be there."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    benchmarks = {each.stem.removeprefix("bench_") for each in ROOT.glob("benchmarks/bench_*.py")}
    inline = re.compile(r"`(?:\w+=\S+ )*make ([a-z-]+)(?: ONLY=(\w+))?[^`\n]*`")
    found = [each for page in ALL_DOCUMENTS for each in inline.findall(page.read_text())]
    assert {target for target, _ in found} <= targets
    assert {only for target, only in found if only and target.startswith("bench")} <= benchmarks


def test_links_between_documents_lead_somewhere() -> None:
    for document in ALL_DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def paths() -> list[tuple[str, str]]:
    """The paths that documents name, each with its document."""
    return [
        (document.name, path)
        for document in ALL_DOCUMENTS
        for path in PATH.findall(document.read_text())
        if path not in NOT_PATHS
    ]


def is_there(path: str) -> bool:
    return any((root / f"{path}{suffix}").exists() for root in ROOTS for suffix in SUFFIXES)


def test_paths_in_documents_exist() -> None:
    assert [each for each in paths() if not is_there(each[1])] == []


def test_a_path_that_does_not_exist_is_noticed() -> None:
    assert PATH.findall("see `core/policies/misfire`, `shard/fire.py` and `shard/`") == [
        "core/policies/misfire",
        "shard/fire.py",
        "shard/",
    ]
    assert is_there("core/policies/misfire")
    assert not is_there("shard/fire.py")


@pytest.mark.parametrize(
    "decision", sorted((ROOT / "docs/adr").iterdir()), ids=lambda each: each.stem
)
def test_a_decision_has_its_number_a_status_and_a_date(decision: Path) -> None:
    head = r"# (\d+)\. [A-Z].+\n\n- Status: [a-z][^#]*\n- Date: \d{4}-\d\d-\d\d\n\n## "
    found = re.match(head, decision.read_text())
    assert found is not None
    assert int(found[1]) == int(decision.name[:4])


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200
