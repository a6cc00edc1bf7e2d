-- name: settle
-- Fenced by token: a run that was taken over has another. Only a live run is changed, so that a
-- replay changes nothing.
WITH given AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::timestamptz[], $3::bigint[], $4::text[], $5::timestamptz[],
        $6::timestamptz[], $7::bigint[], $8::smallint[], $9::text[], $10::timestamptz[],
        $11::text[]
    ) WITH ORDINALITY AS settled (
        job_id, due_at, token, state, started_at,
        finished_at, lateness_us, http_status, error, retry_at,
        skip_reason, position
    )
), changed AS (
    UPDATE runs
    SET state = given.state,
        attempt = runs.attempt + (
            runs.state = 'armed' AND given.state NOT IN ('skipped', 'cancelled')
        )::integer,
        started_at = coalesce(runs.started_at, given.started_at),
        lateness_us = coalesce(runs.lateness_us, given.lateness_us),
        finished_at = CASE WHEN given.state NOT IN ('running', 'retrying')
            THEN given.finished_at END,
        http_status = given.http_status,
        error = given.error,
        retry_at = given.retry_at,
        had_retry = runs.had_retry OR given.state = 'retrying',
        skip_reason = given.skip_reason
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.token = given.token
      AND CASE runs.state
          WHEN 'armed' THEN true
          WHEN 'running' THEN given.state <> 'skipped'
          ELSE false
      END
    RETURNING given.*, runs.tenant_id, runs.partition, runs.attempt, runs.shard, runs.had_retry
), noted AS (
    INSERT INTO attempts (
        job_id, due_at, token, tenant_id, attempt, shard, started_at, finished_at, outcome,
        http_status, error
    )
    SELECT job_id, due_at, token, tenant_id, attempt, shard, started_at, finished_at, 'failed',
        http_status, error
    FROM changed WHERE state = 'retrying'
), waiting AS (
    INSERT INTO retries (job_id, due_at, partition, retry_at)
    SELECT job_id, due_at, partition, retry_at FROM changed WHERE state = 'retrying'
    ON CONFLICT (job_id, due_at) DO UPDATE SET retry_at = excluded.retry_at
), ended AS (
    DELETE FROM retries
    USING changed
    WHERE changed.had_retry AND changed.state NOT IN ('retrying', 'running')
      AND retries.job_id = changed.job_id AND retries.due_at = changed.due_at
), buried AS (
    INSERT INTO dead (tenant_id, due_at, job_id)
    SELECT tenant_id, due_at, job_id FROM changed WHERE state = 'dead'
    ON CONFLICT DO NOTHING
)
SELECT
    count(*) AS changed,
    CASE WHEN count(*) < cardinality($1::uuid[]) THEN array_agg(position) END AS positions
FROM changed;

-- name: note_stale
-- Of the outcomes that changed nothing, those whose token the run no longer has.
WITH stale AS (
    SELECT given.*, runs.tenant_id, runs.attempt
    FROM unnest(
        $1::uuid[], $2::timestamptz[], $3::bigint[], $4::timestamptz[], $5::timestamptz[],
        $6::smallint[], $7::text[]
    ) AS given (job_id, due_at, token, started_at, finished_at, http_status, error)
    JOIN runs ON runs.job_id = given.job_id AND runs.due_at = given.due_at
    WHERE runs.token IS DISTINCT FROM given.token
), noted AS (
    INSERT INTO attempts (
        job_id, due_at, token, tenant_id, attempt, started_at, finished_at, outcome,
        http_status, error
    )
    SELECT job_id, due_at, token, tenant_id, attempt, started_at, finished_at, 'stale',
        http_status, error
    FROM stale
    ON CONFLICT DO NOTHING
)
SELECT job_id, due_at FROM stale;

-- name: list_unfinished
-- Armed or running runs, whoever armed them: those on a first attempt lie after the mark of
-- their partition, and the others are in retries.
SELECT page.* FROM partitions
CROSS JOIN LATERAL (
    (
        SELECT runs.* FROM runs
        WHERE runs.partition = partitions.partition
          AND runs.due_at >= partitions.live_since
          AND (runs.partition, runs.due_at, runs.job_id) > ($3::smallint, $4::timestamptz, $5::uuid)
          AND runs.state IN ('armed', 'running')
        ORDER BY runs.due_at, runs.job_id
        LIMIT $6
    )
    UNION ALL
    (
        SELECT runs.* FROM retries
        JOIN runs ON runs.job_id = retries.job_id AND runs.due_at = retries.due_at
        WHERE retries.partition = partitions.partition
          AND retries.retry_at IS NULL
          AND runs.due_at < partitions.live_since
          AND (runs.partition, runs.due_at, runs.job_id) > ($3::smallint, $4::timestamptz, $5::uuid)
          AND runs.state IN ('armed', 'running')
        ORDER BY runs.due_at, runs.job_id
        LIMIT $6
    )
) AS page
WHERE partitions.partition = ANY ($2::smallint[])
  AND partitions.partition >= $3::smallint
  AND partitions.owner = $1
ORDER BY page.partition, page.due_at, page.job_id
LIMIT $6;

-- name: adopt
-- The run goes on under its new owner's token; an outcome with the old one is stale from here.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), given AS (
    SELECT * FROM unnest($3::uuid[], $4::timestamptz[], $5::bigint[], $6::bigint[])
        AS run (job_id, due_at, old_token, token)
), adopted AS (
    UPDATE runs SET shard = $1, token = given.token
    FROM given, fence
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.token = given.old_token
      AND given.token > given.old_token
      AND runs.state IN ('armed', 'running')
    RETURNING runs.job_id, runs.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) AS job_ids,
    array_agg(due_at) AS due_ats
FROM adopted;

-- name: recheck
SELECT runs.job_id, runs.due_at, runs.state, runs.token, runs.heartbeat_at, jobs.version
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN runs ON runs.job_id = given.job_id AND runs.due_at = given.due_at
LEFT JOIN jobs ON jobs.job_id = given.job_id;
