-- name: list_unfinished
-- A page of the unfinished runs of each partition, after a position. Runs armed for a first attempt
-- are due since `live_since` of their partition; all others are in retries. Each partition is read
-- from its position on, up to the limit, so that all pages together read every row once.
SELECT page.job_id, page.due_at
FROM unnest($2::smallint[], $3::timestamptz[], $4::uuid[]) AS given (partition, due_at, job_id)
JOIN partitions ON partitions.partition = given.partition
CROSS JOIN LATERAL (
    (
        SELECT runs.job_id, runs.due_at FROM runs
        WHERE runs.partition = given.partition
          AND runs.due_at >= greatest(partitions.live_since, given.due_at)
          AND (runs.due_at, runs.job_id) > (given.due_at, given.job_id)
          AND runs.state IN ('armed', 'running', 'retrying')
          AND NOT runs.had_retry
        ORDER BY runs.due_at, runs.job_id
        LIMIT $5
    )
    UNION ALL
    (
        SELECT retries.job_id, retries.due_at FROM retries
        WHERE retries.partition = given.partition
          AND (retries.due_at, retries.job_id) > (given.due_at, given.job_id)
        ORDER BY retries.due_at, retries.job_id
        LIMIT $6
    )
    ORDER BY due_at, job_id
    LIMIT $5
) AS page
WHERE partitions.owner = $1
ORDER BY given.partition, page.due_at, page.job_id;

-- name: adopt
-- Gives unfinished runs a token of their new owner. Outcomes with the old token are stale from then
-- on.
WITH {{fence_with_owned}}, given AS MATERIALIZED (
    SELECT run.*, fence.owned
    FROM fence, unnest($3::uuid[], $4::timestamptz[], $5::bigint[], $6::bigint[])
        AS run (job_id, due_at, old_token, token)
), adopted AS (
    UPDATE runs SET shard = $1, token = given.token, heartbeat_at = NULL
    FROM given
    WHERE array_position(given.owned, runs.partition) IS NOT NULL  -- never an index condition
      AND runs.job_id = given.job_id
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

-- name: forget_heartbeats
-- A run that is given back keeps its token. The next worker must not have the lease of the first.
UPDATE runs SET heartbeat_at = NULL, lease_us = NULL
FROM unnest($1::uuid[], $2::timestamptz[], $3::bigint[], $4::timestamptz[])
    AS given (job_id, due_at, token, given_back_at)
WHERE runs.job_id = given.job_id
  AND runs.due_at = given.due_at
  AND runs.token = given.token
  AND runs.heartbeat_at <= given.given_back_at;

-- name: revalidate
SELECT runs.*, jobs.version, jobs.state = 'paused' AND NOT runs.had_retry AS is_paused
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN runs ON runs.job_id = given.job_id AND runs.due_at = given.due_at
LEFT JOIN jobs ON jobs.job_id = given.job_id;
