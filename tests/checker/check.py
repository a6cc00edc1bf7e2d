"""The checker: decides from what clients, workers and tables say whether every promise was kept.

Independent of the product: it imports nothing of it. `records` says what it reads.

| found                 | means |
|-----------------------|---|
| `lost`                | a due time, or a trigger, that nothing in the tables accounts for |
| `stuck`               | a run without an end, long after everything was healed |
| `vanished`            | a job that was acknowledged, and is gone though nobody deleted it |
| `uncommitted`         | a job that is there, though its client was told that it is not |
| `unplanned`           | a job that no shard has planned, long after everything was healed |
| `misjudged`           | a job that was refused and should not have been, or the other way round |
| `groundless`          | skipped, cancelled or dead, for a reason that was not there |
| `invented`            | a run for a time at which its job was not due |
| `requested_twice`     | more runs by hand, or of a backfill, than were asked for |
| `retried_unasked`     | a run with more lives than somebody asked for |
| `misfilled`           | a backfill of other due times than there were |
| `miscounted`          | a skip that stands for more or fewer due times than there were |
| `contradicted`        | a worker was told another time, or trigger, than the tables say |
| `unrecorded`          | a worker received a run that is not in the tables |
| `phantom`             | a run that succeeded without a worker |
| `early`               | dispatched before its due time |
| `duplicated`          | dispatched twice, and no fault explains it |
| `tried_too_often`     | more attempts than its job allows |
| `armed_twice`         | two rows, or two claims in one epoch |
| `token_reused`        | two dispatches, or two runs of a partition, with one token |
| `token_order`         | an older token after a newer one |
| `key_changed`         | attempts of one run with different keys |
| `key_shared`          | one key for two runs |
| `sent_after_end`      | dispatched after its final outcome, though another is written by now |
| `skipped_and_sent`    | recorded as skipped, and dispatched |
| `stale_write`         | an outcome that is not that of the latest attempt, or over a final one |
| `two_owners`          | two owners of a partition in one epoch |
| `epoch_order`         | an epoch that did not grow |
| `wrong_epoch`         | a token of an epoch that was not, or not yet |
| `wrong_owner`         | a run armed by another shard than the owner |
| `armed_after_release` | armed after the partition was given up or taken over |
| `sent_after_takeover` | dispatched by a shard that had been taken over |
| `sent_from_memory`    | dispatched by an owner whom the database has long forgotten |
| `robbed`              | a shard was taken over that lives, and could have renewed |
| `fired_while_paused`  | fired though paused, deleted or rescheduled a second before |
| `fired_while_cancelled` | fired though a cancel was in time |
| `untold`              | fired after the answer to a change that did not say so |
| `old_self`            | fired as it was before an edit of a second before |
| `overlapping`         | two live runs under `overlap=skip` or `queue` |
| `outlived`            | tried again after a later run under `overlap=cancel` |
| `cross_tenant`        | a run at another tenant's worker, in its name, or signed by its secret; |
|                       | or a job of another tenant that was not kept from who asked for it |
| `late`, `too_late`    | without a fault, and for longer than a fault explains |
| `slow_takeover`       | a job of a killed shard that fired no earlier than 15 s later |
| `mislabelled`         | by its time it is another run than it says, and not merely late |
| `handed_out_early`    | handed to a worker while another may still have had it |
| `attempt_wasted`      | given back unbegun, and counted as an attempt |
| `unwritten`           | its worker was told that it is written, and it is not |
| `uncancelled`         | cancelled, and its worker was not told |
| `overloaded`          | a worker got more runs than it had asked for |
| `unasked`             | a run went to a link, or a worker, that had not asked for its queue |
| `starved`             | a run waited beside a worker that had asked for it |
| `outwaited`           | a run waited for a worker for longer than its job allows |
"""

from tests.checker import (
    accounts,
    changes,
    deliveries,
    existence,
    grounds,
    lateness,
    overlaps,
    ownerships,
    queues,
    requested,
    revivals,
    takeovers,
    tenants,
)
from tests.checker.findings import Evidence, Report
from tests.checker.records import History


def check(history: History) -> Report:
    """The verdict about a history."""
    evidence = Evidence(history)
    report = Report(runs=len(history.runs))
    report.findings += accounts.check(evidence)
    report.findings += grounds.check(evidence)
    report.findings += existence.check(evidence, report)
    report.findings += requested.check(evidence)
    report.findings += revivals.check(evidence)
    report.findings += deliveries.check(evidence, report)
    report.findings += ownerships.check(evidence)
    report.findings += takeovers.check(evidence, report)
    report.findings += changes.check(evidence)
    report.findings += overlaps.check(evidence)
    report.findings += tenants.check(evidence)
    report.findings += queues.check(evidence)
    report.findings += lateness.check(evidence, report)
    report.findings.sort()
    return report
