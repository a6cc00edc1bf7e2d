"""What the documents say is run: every Python block, and every command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

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


@pytest.mark.parametrize("block", [pytest.param(text, id=name) for name, text in python_blocks()])
def test_python_in_a_document_runs(block: str) -> None:
    subprocess.run([sys.executable, "-c", block], check=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("command", [each for each in commands() if each not in RUN_ELSEWHERE])
def test_a_command_in_a_document_runs(command: str) -> None:
    subprocess.run(command.split(), check=True, cwd=ROOT, timeout=600)


def test_the_two_commands_are_there() -> None:
    assert {"make demo", "make test"} <= set(commands())


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160
