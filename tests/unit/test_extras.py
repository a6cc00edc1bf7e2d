"""The extras: what each adds, and what is said where one is missing."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from wheelsched import extras
from wheelsched.errors import MissingExtra
from wheelsched.extras import MODULES, require

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
# By aiohttp, for data, not on Windows; by the others of the extra.
NOT_CHECKED = {"aiohappyeyeballs", "tzdata", "uvloop", "protobuf", "wheelsched[server]"}


@pytest.fixture(autouse=True)
def unremembered() -> Iterator[None]:
    require.cache_clear()
    yield
    require.cache_clear()


def test_what_is_checked_is_what_the_extra_installs() -> None:
    for extra, modules in MODULES.items():
        required = PROJECT["optional-dependencies"][extra]
        names = {requirement.partition(">=")[0] for requirement in required}
        installed = packages_distributions()
        checked = {installed[module][0].lower().replace("_", "-") for module in modules}
        assert checked == names - NOT_CHECKED


def test_an_extra_that_is_installed_is_accepted() -> None:
    require("server")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "typer" else name)
    with pytest.raises(MissingExtra, match=r"typer is not .* `pip install 'wheelsched\[server\]'`"):
        require("server")
    with pytest.raises(ImportError):
        require("server")
