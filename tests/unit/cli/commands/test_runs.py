"""How `run` commands show runs."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from wheelsched.cli.commands.runs import words_of
from wheelsched.core.model import RunState, Trigger
from wheelsched.wire.run import AttemptAnswer, RunAnswer

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def run(state: RunState, *attempts: AttemptAnswer) -> RunAnswer:
    nothing = dict.fromkeys(RunAnswer.__struct_fields__)
    known = {"state": state, "trigger": Trigger.MANUAL, "attempt": len(attempts)}
    return RunAnswer(**(nothing | known | {"attempts": attempts}))  # type: ignore[arg-type]


def attempt(number: int, **fields: object) -> AttemptAnswer:
    known = {
        "attempt": number,
        "token": 1,
        "shard": uuid4(),
        "started_at": NOW,
        "finished_at": NOW,
        "http_status": None,
        "error": None,
    }
    return AttemptAnswer(**(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "fields", "words"),
    [
        (RunState.SUCCEEDED, {"http_status": 200}, "200"),
        (RunState.SUCCEEDED, {}, "completed by the worker"),
        (RunState.DEAD, {"http_status": 500, "error": "boom"}, "500 boom"),
        (RunState.DEAD, {"error": "Connection refused"}, "Connection refused"),
        (RunState.DEAD, {}, "no response"),
        (RunState.RUNNING, {"http_status": 202, "finished_at": None}, "unfinished"),
    ],
)
def test_an_attempt_says_how_it_ended(
    state: RunState, fields: dict[str, object], words: str
) -> None:
    last = attempt(1, **fields)
    assert words_of(last, run(state, last)) == words


def test_only_the_last_attempt_of_a_run_that_succeeded_was_completed() -> None:
    attempts = attempt(1), attempt(2)
    succeeded = run(RunState.SUCCEEDED, *attempts)
    assert [words_of(each, succeeded) for each in attempts] == [
        "no response",
        "completed by the worker",
    ]
