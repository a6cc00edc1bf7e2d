"""Armed runs for tests."""

from uuid import UUID, uuid4

from wheelsched.core.model import HttpTarget, Lane, RunKey, Trigger
from wheelsched.core.policies.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.ports import Prepared, Route
from wheelsched.shard.runs.armed_run import ArmedRun, Rules

RULES = Rules(MisfirePolicy(), OverlapPolicy(), RetryPolicy(), 1_000_000)
ROUTE = Route(
    tenant_id=UUID(int=1), target=HttpTarget(url="http://worker.example/"), origin="http://worker"
)


def armed(
    due_us: int, *, job_id: UUID | None = None, route: Route = ROUTE, lane: Lane = Lane.ON_TIME
) -> ArmedRun:
    key = RunKey(job_id or uuid4(), due_us)
    return ArmedRun(
        key=key,
        token=1 << 32,
        fire_at_us=due_us,
        attempt=1,
        trigger=Trigger.SCHEDULE,
        lane=lane,
        is_first=True,
        version=1,
        rules=RULES,
        route=route,
        priority=0,
        prepared=Prepared(
            run_id="",
            idempotency_key="",
            token=1 << 32,
            send_at_us=due_us,
            timeout_us=1,
            secrets=(),
            content=b"",
        ),
    )
