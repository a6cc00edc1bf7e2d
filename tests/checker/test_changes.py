"""What an answer to a change has to name, and what it need not."""

from msgspec.structs import replace
from tests.checker.check import check
from tests.checker.quiet import and_also, at, changed_run, quiet, request
from tests.checker.test_findings import CASES


def test_who_was_told_that_a_cancel_is_late_is_not_told_again_by_the_next_change() -> None:
    cancel = request("cancel", 29.2, due_us=at(30))
    cancelled = {"state": "cancelled", "finished_at_us": at(29.2)}
    untold = CASES["untold"](quiet())
    history = changed_run(and_also(untold, cancel), 30, **cancelled)
    assert "untold" not in check(history).names
    assert "untold" in check(and_also(untold, cancel)).names  # it was left as it is
    assert "untold" in check(changed_run(history, 30, finished_at_us=at(29.6))).names
    for changed in (replace(cancel, due_us=at(50)), replace(cancel, result="unknown")):
        history = changed_run(and_also(untold, changed), 30, **cancelled)
        assert "untold" in check(history).names
