"""`queue`: lists queues, their waiting runs and their workers.

Invariant: workers and credits are those of the API process that answers.
"""

from wheelsched.cli.output import Output, rows
from wheelsched.cli.shared import group, with_watchable_client
from wheelsched.client import SyncClient
from wheelsched.values.duration import MILLISECOND, SECOND, format_duration
from wheelsched.wire.queue import QueueAnswer

app = group("Show the queues of workers that pull.")


@app.command("list")
@with_watchable_client
def list_queues(client: SyncClient) -> Output:
    """Show how many runs wait in each queue, for how long, and its workers."""
    answer = client.list_queues()
    table = rows(
        answer.items,
        {
            "queue": lambda queue: queue.queue,
            "waiting": lambda queue: queue.depth,
            "oldest": _age_of,
            "workers": lambda queue: queue.workers,
            "credits": lambda queue: queue.credits,
        },
    )
    return Output(answer, table.text)


def _age_of(queue: QueueAnswer) -> str | None:
    """How long the oldest run has waited, in whole seconds."""
    if queue.oldest_age_ms is None:
        return None
    return format_duration(queue.oldest_age_ms * MILLISECOND // SECOND * SECOND)
