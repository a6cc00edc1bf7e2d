"""`make walk` follows one run, from the load of its timer to its settled outcome."""

import asyncio
import re

import pytest
from tests.walk import Walk, report, walk

from wheelsched.core.model import RunState

MOST_MODULES = 15  # of `shard/`; more are hard to follow


@pytest.fixture(scope="module")
def walked() -> Walk:
    return asyncio.run(walk())


def test_the_walk_follows_a_run_through_every_stage_until_it_is_settled(walked: Walk) -> None:
    assert walked.run.state is RunState.SUCCEEDED
    stages = [
        next(index for index, module in enumerate(walked.modules) if re.search(stage, module))
        for stage in (r"shard\.(loading\.)?load$", r"arm$", r"shard\.fir(e|ing)\b", r"settle$")
    ]
    assert stages == sorted(stages)


def test_a_run_passes_few_modules_of_the_shard(walked: Walk) -> None:
    assert len(walked.shard_modules) <= MOST_MODULES, walked.shard_modules


def test_the_report_shows_the_path_and_counts_it(walked: Walk) -> None:
    *path, empty, counts = report(walked)
    assert empty == ""
    functions = [line for line in path if line.startswith("    ")]
    assert [line.strip() for line in functions] == [each.name for each in walked.path]
    assert counts.startswith(
        f"{len(functions)} functions in {len(walked.modules)} modules, "
        f"{len(walked.shard_modules)} of them in shard/"
    )
    assert not any(module.startswith("wheelsched.testing") for module in walked.modules)


def test_what_an_idle_shard_does_is_left_out(walked: Walk) -> None:
    names = {function.name for function in walked.path}
    assert not any("renew" in name for name in names)
