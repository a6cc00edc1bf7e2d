"""The credits of a line, when the process behind its pools does not keep up."""

from collections.abc import Sequence
from uuid import UUID

from tests.desks import TENANT, queue_run

from wheelsched.delivery.queue.desk import QueueDesk
from wheelsched.delivery.queue.lines import Lines
from wheelsched.ports.work import Attempted, Pool, QueueRun


class FullProcess:
    """A `Receiver` that pauses its desk as soon as it gets something."""

    desk: QueueDesk

    def __init__(self) -> None:
        self.runs: list[QueueRun] = []

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        self.runs += runs
        self.desk.pause()

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        raise NotImplementedError

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        raise NotImplementedError


def test_a_desk_may_be_paused_during_a_hand_out() -> None:
    process = FullProcess()
    lines = Lines(lambda _: None, lambda _: None)
    process.desk = QueueDesk(process, lines, lambda: None, lambda _: None)
    process.desk.lend(Pool(TENANT, ("billing",)), 2)
    process.desk.lend(Pool(TENANT, ("billing", "mail")), 2)
    line = lines.get(TENANT, "billing")
    line.hand_out([queue_run() for _ in range(3)], 0)
    assert len(process.runs) == 3
    assert line.credits == 0
    process.desk.resume()
    assert line.credits == 1
