"""Compares the registry of unfinished runs with plain sets."""

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.shard.armed_runs import armed

from wheelsched.core.model import RunKey
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.runs.registry import RunRegistry

JOBS = [UUID(int=number) for number in range(2)]
keys = st.builds(RunKey, st.sampled_from(JOBS), st.integers(1, 3))


class Runs(RuleBasedStateMachine):
    """Few jobs with few runs each, so that runs often stop or start being alone."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = RunRegistry(most=1_000)
        self.armed: dict[RunKey, ArmedRun] = {}
        self.live: dict[RunKey, ArmedRun | None] = {}  # with the attempt that is under way
        self.waiting: set[RunKey] = set()  # of those that are armed

    @rule(key=keys)
    def arm(self, key: RunKey) -> None:
        if key not in self.live:
            run = armed(key.due_us, job_id=key.job_id)
            self.registry.arm(run)
            self.armed[key] = run

            self.waiting.discard(key)  # with one that was armed before

    @rule(key=keys)
    def disarm(self, key: RunKey) -> None:
        if key not in self.waiting and (run := self.armed.pop(key, None)) is not None:
            assert self.registry.disarm(run)
            assert not self.registry.disarm(run)

    @rule(key=keys)
    def forget(self, key: RunKey) -> None:
        if (run := self.armed.pop(key, None)) is not None:
            self.waiting.discard(key)
            self.registry.forget([run])
            assert run.phase is Phase.WITHDRAWN

    @rule(key=keys)
    def wait(self, key: RunKey) -> None:
        if key in self.armed and key not in self.waiting:
            self.registry.wait(self.armed[key])
            self.waiting.add(key)

    @rule(key=keys)
    def begin(self, key: RunKey) -> None:
        if (run := self.armed.pop(key, None)) is not None:
            if key in self.waiting:
                self.waiting.remove(key)
                self.registry.take_waiting(run)
            self.registry.begin(run)
            self.live[key] = run

    @rule(key=keys)
    def begin_alone(self, key: RunKey) -> None:
        """A run is kept as alone only if its job has no other."""
        run = self.armed.get(key)
        if run is not None and self.registry.begin_alone(run):
            assert self._of(key.job_id) == {key}
            self.live[key] = self.armed.pop(key)

    @rule(key=keys)
    def end_alone(self, key: RunKey) -> None:
        run = self.live.get(key)
        if run is not None:
            assert not self.registry.end_alone(key, run.token + 1)
        if run is not None and self.registry.end_alone(key, run.token):
            assert self._of(key.job_id) == {key}
            del self.live[key]

    @rule(key=keys)
    def end(self, key: RunKey) -> None:
        if key in self.live:
            self.registry.end(key)
            del self.live[key]

    @rule(key=keys)
    def pause(self, key: RunKey) -> None:
        if key in self.live:
            self.registry.pause(key)
            self.live[key] = None

    @rule(key=keys)
    def revive(self, key: RunKey) -> None:
        if key not in self.live and key not in self.armed:
            self.registry.revive(key, 1)
            self.live[key] = None

    @invariant()
    def knows_what_is_there(self) -> None:
        registry = self.registry
        assert registry.armed_count == len(self.armed)
        assert registry.live_count == len(self.live)
        assert registry.waiting_count == len(self.waiting)
        assert set(registry.job_ids()) == {key.job_id for key in (*self.armed, *self.live)}
        for job_id in JOBS:
            live = {key for key in self.live if key.job_id == job_id}
            assert {run.key for run in registry.armed_of(job_id)} == self._of(job_id) - live
            waiting = sorted(key for key in self.waiting if key.job_id == job_id)
            first = registry.first_waiting(job_id)
            assert (first and first.key) == (waiting[0] if waiting else None)
            assert registry.is_idle(job_id) == (not live and not waiting)
            assert registry.has_any(job_id) == bool(self._of(job_id))

    @rule(job_id=st.sampled_from(JOBS))
    def look_closely(self, job_id: UUID) -> None:
        found = {live.key: live.armed for live in self.registry.live_of(job_id)}
        assert found == {key: run for key, run in self.live.items() if key.job_id == job_id}

    def _of(self, job_id: UUID) -> set[RunKey]:
        return {key for key in (*self.armed, *self.live) if key.job_id == job_id}


TestRuns = Runs.TestCase
TestRuns.settings = settings(stateful_step_count=30)
