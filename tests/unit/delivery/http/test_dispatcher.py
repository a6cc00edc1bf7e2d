import threading
from uuid import uuid4

from wheelsched.config import DispatchConfig
from wheelsched.core.model import HttpTarget, RunKey, Trigger
from wheelsched.core.outcome import Failed
from wheelsched.delivery.http.dispatcher import HttpDispatcher
from wheelsched.ports import Callback


async def test_a_request_after_closing_fails_and_no_thread_remains() -> None:
    async with HttpDispatcher(DispatchConfig(), lambda: 0) as dispatcher:
        route = dispatcher.route(uuid4(), HttpTarget(url="http://does-not-exist.invalid/"))
        prepared = dispatcher.prepare(
            route,
            Callback(
                key=RunKey(uuid4(), 0),
                job_name="report",
                payload=b"null",
                secrets=(),
                scheduled_us=0,
                send_at_us=0,
                timeout_us=60_000_000,
                attempt=1,
                token=1 << 32,
                trigger=Trigger.MANUAL,
                idempotency_key="a",
            ),
        )
        outcomes = await dispatcher.send(route, [prepared], lambda: True)
        assert [type(outcome) for outcome in outcomes or ()] == [Failed]
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("lookup")]
        assert threads
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    outcomes = await dispatcher.send(route, [prepared], lambda: True)
    assert [type(outcome) for outcome in outcomes or ()] == [Failed]
