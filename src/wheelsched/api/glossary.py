"""What fields and parameters mean, for the OpenAPI document: those that need one sentence.

Invariant: every property and every parameter of the document has a description: its own, that of
`Struct.field` here, or that of `field`.
"""

from collections.abc import Mapping
from typing import Any, Final

from wheelsched.api.replays import HEADER

GLOSSARY: Final[Mapping[str, str]] = {
    # jobs
    "job_id": "Id of the job.",
    "name": "Unique name.",
    "created_at": "When it was created.",
    "updated_at": "When it was last changed.",
    "registered": "Number of jobs that were registered.",
    "refused": "Number of documents that were refused.",
    "problem": "Why the document was refused.",
    "from": "Where the schedule goes on: now, or when it was paused.",
    "timezone": "IANA time zone.",
    # schedules
    "utc": "The due time in UTC.",
    "local": "The due time in the job's time zone.",
    "words": "The schedule in words.",
    "next_times": "The next due times.",
    "warnings": "What may not be what was meant, such as times that a clock change skips.",
    "at": "The time in question.",
    "verdict": "Why the job did or did not fire then.",
    "run": "The run of that time, if there is one.",
    "due_before": "Last due time before that time.",
    "due_after": "First due time after it.",
    "count": "Number of items.",
    # runs
    "run_id": "Id of the run: the job's id and the due time.",
    "run_ids": "Ids of the runs.",
    "scheduled_at": "Due time that the run stands for.",
    "due_at": "Due time of the run itself; differs from `scheduled_at` for a backfill.",
    "RunAnswer.state": "State of the run.",
    "trigger": "What asked for the run: the schedule, a person, or a backfill.",
    "attempt": "Number of the latest attempt, the first being 1; 0 before it.",
    "AttemptAnswer.attempt": "Number of the attempt, the first being 1.",
    "retry_at": "When the next attempt is due.",
    "armed_at": "When a shard claimed the run.",
    "RunAnswer.started_at": "When the first attempt was sent.",
    "started_at": "When it was started.",
    "finished_at": "When it ended.",
    "lateness_ms": "Time from the due time, with its jitter, to the first attempt.",
    "http_status": "Status of the latest answer.",
    "AttemptAnswer.error": "Why the attempt failed.",
    "RunAnswer.error": "Why the latest attempt failed.",
    "FailRequest.error": "Why the attempt failed.",
    "skip_reason": "Why the run was skipped.",
    "missed_count": "Number of due times that this skipped run stands for.",
    "missed_since": "First due time that this skipped run stands for.",
    "shard": "Id of the shard that sent it.",
    "token": "Fencing token of the latest attempt.",
    "FailRequest.retry": "False if another attempt would not help.",
    "in_time": "True if the run was ended before it was sent.",
    "preview": "True to count the runs only.",
    "RequestedAnswer.preview": "True if the runs were counted only.",
    "since": "Start of the range.",
    "until": "End of the range (exclusive).",
    "rate": "Number of runs that become due each second; all at once if unset.",
    "RedriveRequest.limit": "Most runs to redrive.",
    # lists and problems
    "items": "The items, in order.",
    "next_cursor": "`cursor` of the next page; null on the last one.",
    "limit": "Most items of the page.",
    "cursor": "`next_cursor` of the page before.",
    "state": "Only those in this state.",
    "type": "URN of the kind of problem.",
    "title": "The kind of problem in words.",
    "status": "HTTP status.",
    "detail": "What is wrong, and what would be right.",
    "errors": "The fields that are wrong.",
    "request_id": "Id of the request, as in the header `X-Request-Id` and the logs.",
    # shards
    "shard_id": "Id of the shard, new each time that it starts.",
    "is_expired": "True if the shard lost its lease.",
    "renewals": "How often the lease was renewed.",
    "partitions": "Partitions that the shard owns.",
    "free_partitions": "Partitions without an owner.",
    "lateness_p99_ms": "99th percentile of lateness, by the shard's own account.",
    "armed": "Runs that are armed.",
    "in_flight": "Runs that were sent and are not answered.",
    "unready_partitions": "Partitions whose unfinished runs are still being read: nothing fires.",
    "BreakerAnswer.kind": "What failed: the origin, a job, or a target with batches.",
    "BreakerAnswer.target": "The origin, or the URL of a target with batches.",
    "BreakerAnswer.job_id": "The job, if its answers failed.",
    "opened_at": "When the breaker opened.",
    "next_probe_at": "When the next run is let through.",
    "BreakerAnswer.error": "The last error.",
    # tenants and tokens
    "tenant_id": "Id of the tenant.",
    "token_id": "Id of the token.",
    "job_quota": "Most jobs of the tenant.",
    "requests_per_second": "Requests to the API a second that the tenant may make.",
    "weight": "Share of the dispatch capacity, relative to other tenants.",
    "finish": "True to end the old secret.",
    "scopes": "What the token may do.",
    "revoked_at": "When the token was revoked.",
    # headers
    HEADER: "Makes the request safe to repeat: the first answer is kept and given again.",
    "If-Match": "Version that the change is meant for, as `ETag` gave it; 412 for another.",
}


def describe_all(schemas: Mapping[str, Any]) -> None:
    """Add to each property without a description that of the job's document, or of the glossary."""
    documented = schemas["JobDocument"]["properties"]
    for name, schema in schemas.items():
        for field, described in schema.get("properties", {}).items():
            if "description" not in described:
                borrowed = documented.get(field, {}) if name == "JobAnswer" else {}
                text = borrowed.get("description") or meaning_of(field, name)
                described.update({"description": text} if text else {})


def meaning_of(name: str, within: str = "") -> str | None:
    return GLOSSARY.get(f"{within}.{name}") or GLOSSARY.get(name)
