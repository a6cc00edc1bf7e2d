"""Every example runs as a process of its own, ends well, and says what it is there to show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stack import GENEROUS_S

pytestmark = pytest.mark.proof  # each example in a process of its own

EXAMPLES = Path(__file__).parents[2] / "examples"

# What holds however slow the machine is.
SHOWN = {
    "delayed_retries": [r"\d+ messages delivered, each once: True", r"^0 lost"],
    "half_a_million": [
        r"^callbacks: 2,000 timers",
        r"^batches: 2,000 timers",
        r"(?s)(lost 0, early 0.*){2}",
    ],
    "in_your_program": [
        r"^one reminder too many, cancelled in time: True",
        r"^40 orders, each reminded of once: True",
        r"^the job that is declared in code ran in \d+ seconds",
    ],
    "in_your_transaction": [
        r"^a yacht: rolled back, and its reminder with it",
        r"^a drum: cancelled in time: True",
        r"^reminded of a kite",
        r"^audit: refused, /schedule: .*61",
        r"^remind of a kite: ",
        r"^other reminders: 0",
    ],
    "pulling_worker": [
        r"^60 customers have their invoice, each once: True",
        r"^both have worked: True",
        r"^Ben did nothing after he was stopped: True",
    ],
    "rate_limited_refill": [r"none above its rate: True", r"idle tenants still full: True"],
    "repeated_callbacks": [
        r"^customer 0, attempt 1: 422 there is no customer 0",
        r"^customer 3, attempt 1: 500 ConnectionError: the printer is away",
        r"^12 callbacks, reports written for customers \[1, 2, 3\]",
    ],
    "request_timeouts": [r"^silent: hung up on", r"^talkative: hung up on"],
}
OPTIONS = {"half_a_million": ["--timers", "2000"]}


@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_shows_what_it_promises(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{example}.py", *OPTIONS.get(example, [])],
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for pattern in SHOWN[example]:
        assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout
