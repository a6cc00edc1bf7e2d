"""The version stands in `pyproject.toml`, and everything else reads it from the metadata."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import wheelsched

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_package_has_the_version_of_the_project() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["version"]
    assert wheelsched.__version__ == version("wheelsched") == declared


def test_an_unknown_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wheelsched.nothing  # noqa: B018 - looking it up is the test
