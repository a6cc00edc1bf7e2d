"""Descriptions of fields and parameters in the OpenAPI document that have none of their own.

Invariant: every property and parameter has a description: its own, that of `Struct.field` here, or
that of `field`.
"""

from collections.abc import Mapping
from typing import Any, Final

from wheelsched.api.http.idempotency import HEADER

GLOSSARY: Final[Mapping[str, str]] = {
    # jobs
    "job_id": "Id of the job.",
    "name": "Name.",
    "created_at": "Creation time.",
    "updated_at": "Time of the last change.",
    "registered": "Number of jobs registered.",
    "refused": "Number of documents rejected.",
    "problem": "Why the document was rejected.",
    "from": "Where the schedule continues: now, or at the time it was paused.",
    "timezone": "IANA time zone.",
    # schedules
    "utc": "Due time in UTC.",
    "local": "Due time in the job's time zone.",
    "words": "The schedule in plain English.",
    "next_times": "The next due times.",
    "warnings": "Possible surprises, e.g. due times that a clock change skips.",
    "at": "The time to explain.",
    "verdict": "Why the job did or did not fire at that time.",
    "run": "The run for that time, if there is one.",
    "due_before": "Last due time before that time.",
    "due_after": "First due time after that time.",
    "count": "Number of items.",
    # runs
    "run_id": "Id of the run: the job's id and the due time.",
    "run_ids": "Ids of the runs.",
    "RequestedAnswer.count": "Number of runs.",
    "scheduled_at": "Scheduled time of the run; for a backfill, the time that it makes up for.",
    "due_at": "When the run is due; differs from `scheduled_at` for a backfill.",
    "RunAnswer.state": "State of the run.",
    "trigger": "What created the run: the schedule, a manual trigger, or a backfill.",
    "attempt": "Number of the latest attempt, starting at 1; 0 before the first.",
    "AttemptAnswer.attempt": "Number of the attempt, starting at 1.",
    "retry_at": "When the next attempt is due.",
    "armed_at": "When a shard claimed the run.",
    "RunAnswer.started_at": "When the first attempt was sent.",
    "started_at": "Start time.",
    "finished_at": "End time.",
    "lateness_ms": "Time from the due time, including jitter, to the first attempt.",
    "http_status": "HTTP status of the latest response.",
    "AttemptAnswer.http_status": "HTTP status of the response.",
    "AttemptAnswer.token": "Fencing token of the attempt.",
    "AttemptAnswer.error": "Why the attempt failed.",
    "RunAnswer.error": "Why the latest attempt failed.",
    "FailRequest.error": "Why the attempt failed.",
    "skip_reason": "Why the run was skipped.",
    "missed_count": "Number of due times that this skipped run covers.",
    "missed_since": "First due time that this skipped run covers.",
    "shard": "Id of the shard that sent the run.",
    "token": "Fencing token of the latest attempt.",
    "FailRequest.retry": "False to rule out another attempt.",
    "in_time": "True if the run was cancelled before it was sent.",
    "preview": "True to only count the runs.",
    "RequestedAnswer.preview": "True if the runs were only counted.",
    "since": "Start of the range.",
    "until": "End of the range (exclusive).",
    "rate": "Number of runs that become due per second; unset, all at once.",
    "RedriveRequest.limit": "Maximum number of runs to redrive.",
    "queue": "Name of the queue.",
    # lists and problems
    "items": "The items, in order.",
    "next_cursor": "`cursor` of the next page; null on the last page.",
    "limit": "Maximum number of items per page.",
    "cursor": "`next_cursor` of the previous page.",
    "state": "Filter by state.",
    "type": "URN of the problem type.",
    "title": "Short description of the problem type.",
    "status": "HTTP status.",
    "detail": "What is wrong, and how to fix it.",
    "errors": "The invalid fields.",
    "request_id": "Id of the request, as in the header `X-Request-Id` and the logs.",
    # shards
    "shard_id": "Id of the shard; new on every start.",
    "is_expired": "True if the shard lost its lease.",
    "renewals": "Number of lease renewals.",
    "partitions": "Partitions owned by the shard.",
    "free_partitions": "Partitions without an owner.",
    "lateness_p99_ms": "99th percentile of lateness, as reported by the shard.",
    "armed": "Number of armed runs.",
    "in_flight": "Number of runs sent and awaiting a response.",
    "unready_partitions": "Owned partitions whose unfinished runs are not loaded yet.",
    "went_back_at": "When the shard last noticed that the database had lost committed data.",
    "BreakerAnswer.kind": "What failed: the origin, a job, or a batch target.",
    "BreakerAnswer.target": "The origin, or the URL of a batch target.",
    "BreakerAnswer.job_id": "The job, if its responses failed.",
    "opened_at": "When the breaker opened.",
    "next_probe_at": "When the next run is sent as a probe.",
    "BreakerAnswer.error": "The last error.",
    # tenants and tokens
    "tenant_id": "Id of the tenant.",
    "token_id": "Id of the token.",
    "job_quota": "Maximum number of unfinished jobs of the tenant.",
    "requests_per_second": "API request rate limit of the tenant.",
    "weight": "Share of the dispatch capacity, relative to other tenants.",
    "finish": "True to remove the old secret.",
    "scopes": "Permissions of the token.",
    "revoked_at": "When the token was revoked.",
    # headers
    HEADER: "Makes the request safe to retry: a retry gets the response of the first copy.",
    "If-Match": "The `ETag` of the version to change; 412 if the job has another version.",
}


def describe_all(schemas: Mapping[str, Any]) -> None:
    """Adds a description to every property without one, from the job document or from here."""
    documented = schemas["JobDocument"]["properties"]
    for name, schema in schemas.items():
        for field, described in schema.get("properties", {}).items():
            if "description" not in described:
                borrowed = documented.get(field, {}) if name == "JobAnswer" else {}
                text = borrowed.get("description") or description_of(field, name)
                described.update({"description": text} if text else {})


def description_of(name: str, within: str = "") -> str | None:
    return GLOSSARY.get(f"{within}.{name}") or GLOSSARY.get(name)
