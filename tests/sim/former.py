"""What runs were before: noted when an end, or a claim, in the table is written over."""

from collections.abc import Callable

from wheelsched.core.model import FINAL_STATES, Run, RunKey
from wheelsched.testing.tables import MemoryTables, RunRow

Note = Callable[[Run], None]


def watch_runs(tables: MemoryTables, note: Note) -> None:
    """Notes runs as they were, from now on."""
    tables.runs = WatchedRuns(note)


class WatchedRuns(dict[RunKey, RunRow]):
    """The table."""

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def __setitem__(self, key: RunKey, row: RunRow) -> None:
        known = self.get(key)
        if known is not None and is_overwritten(known.run, row.run):
            self._note(known.run)
        fields = (row.run, row.had_retry, row.heartbeat_at_us, row.lease_us, row.request_id)
        super().__setitem__(key, WatchedRow(*fields, note=self._note))


class WatchedRow(RunRow, kw_only=True):
    """A row of it."""

    note: Note

    def __setattr__(self, name: str, value: object) -> None:
        if name == "run" and isinstance(value, Run) and is_overwritten(self.run, value):
            self.note(self.run)
        super().__setattr__(name, value)


def is_overwritten(before: Run, after: Run) -> bool:
    """Whether an end, or a claim, is gone."""
    is_other_end = (before.state, before.finished_at_us) != (after.state, after.finished_at_us)
    if before.state in FINAL_STATES and is_other_end:
        return True
    return before.token is not None and before.token != after.token
