"""The checker is worth what it does not share with the product."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OWN = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_it_imports_nothing_of_what_it_checks(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    foreign = {
        name
        for name in imported
        if name.split(".")[0] == "wheelsched"
        or (name.startswith("tests.") and not name.startswith("tests.checker"))
    }
    assert foreign == set()
