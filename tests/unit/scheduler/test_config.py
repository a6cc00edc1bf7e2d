"""The options of a scheduler."""

import pytest

from wheelsched import Scheduler
from wheelsched.config import LinkConfig
from wheelsched.errors import InvalidSchedulerOption
from wheelsched.scheduler import SchedulerConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"application": ""}, "invalid application ''"),
        ({"application": "a:b"}, "invalid application 'a:b'"),
        ({"concurrency": -1}, "concurrency must be at least 0"),
        ({"release": -1}, "release must be from 0"),
        ({"undeclared": "drop"}, "expected report, pause or delete"),
        ({"link": "7420"}, "expected HOST:PORT"),
        ({"link": "host:70000"}, "expected HOST:PORT"),
        ({"link": "0.0.0.0:7420"}, "add link_address"),
        ({"link": "[::]:7420"}, "add link_address"),
        ({"link": "0.0.0.0:7420", "link_address": "here"}, "invalid link_address"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSchedulerOption, match=message.replace("[", r"\[")):
        Scheduler("postgresql://", **options)  # type: ignore[arg-type]


def test_a_scheduler_needs_a_url_or_a_config() -> None:
    with pytest.raises(InvalidSchedulerOption, match="expected the URL of a database"):
        Scheduler(None)  # type: ignore[arg-type]  # e.g. of an environment variable
    with pytest.raises(InvalidSchedulerOption, match="set migrate in the SchedulerConfig"):
        Scheduler(SchedulerConfig(), migrate=True)


def test_the_link_of_an_instance() -> None:
    config = SchedulerConfig(link="0.0.0.0:7420", link_address="shop-1:7420")
    assert config.link_config == LinkConfig(host="0.0.0.0", port=7420, address="shop-1:7420")
    assert SchedulerConfig(link="[::1]:7").link_config == LinkConfig(host="::1", port=7)
    assert SchedulerConfig().link_config == LinkConfig()
