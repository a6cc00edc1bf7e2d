-- name: settle_successes
-- The success of a first attempt, which nearly all outcomes are. Only the row of the run changes,
-- at two thirds of the cost of `settle`, which settles all other outcomes.
WITH given AS MATERIALIZED (
    SELECT run.job_id, run.token, stretch.first_run + run.place - 1 AS position, stretch.*
    FROM unnest(
        $3::integer[], $4::integer[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[],
        $8::bigint[], $9::smallint[]
    ) AS stretch (first_run, last_run, due_at, started_at, finished_at, lateness_us, http_status)
    CROSS JOIN LATERAL unnest(
        ($1::uuid[])[stretch.first_run:stretch.last_run],
        ($2::bigint[])[stretch.first_run:stretch.last_run]
    ) WITH ORDINALITY AS run (job_id, token, place)
), changed AS (
    UPDATE runs
    SET state = 'succeeded',
        attempt = 1,
        started_at = given.started_at,
        lateness_us = given.lateness_us,
        finished_at = given.finished_at,
        http_status = given.http_status
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.token = given.token
      -- One expression: from three conditions the planner would conclude that hardly any run is
      -- left, and begin with them.
      AND CASE runs.state WHEN 'armed' THEN runs.attempt = 0 AND NOT runs.had_retry ELSE false END
    RETURNING given.position
)
SELECT
    count(*) AS changed,
    CASE WHEN count(*) < cardinality($1::uuid[]) THEN array_agg(position) END AS positions
FROM changed;

-- name: settle
-- Fenced by the token, which changes when a run is taken over. Only an unfinished run is changed,
-- so that a replay changes nothing. Consecutive runs with the same ending share one row of
-- arguments. `given` is materialised because a plan that was made for empty tables would read all
-- runs of a due time.
WITH given AS MATERIALIZED (
    SELECT run.job_id, run.token, stretch.first_run + run.place - 1 AS position, stretch.*
    FROM unnest(
        $3::integer[], $4::integer[], $5::timestamptz[], $6::text[], $7::timestamptz[],
        $8::timestamptz[], $9::bigint[], $10::smallint[], $11::text[], $12::timestamptz[],
        $13::text[], $14::boolean[]
    ) AS stretch (
        first_run, last_run, due_at, state, started_at,
        finished_at, lateness_us, http_status, error, retry_at,
        skip_reason, is_attempt
    )
    CROSS JOIN LATERAL unnest(
        ($1::uuid[])[stretch.first_run:stretch.last_run],
        ($2::bigint[])[stretch.first_run:stretch.last_run]
    ) WITH ORDINALITY AS run (job_id, token, place)
), changed AS (
    UPDATE runs
    SET state = given.state,
        attempt = runs.attempt + (
            runs.state = 'armed' AND given.is_attempt
            AND given.state NOT IN ('skipped', 'cancelled')
        )::integer,
        started_at = coalesce(runs.started_at, given.started_at),
        lateness_us = coalesce(runs.lateness_us, given.lateness_us),
        finished_at = CASE WHEN given.state NOT IN ('running', 'retrying')
            THEN given.finished_at END,
        http_status = given.http_status,
        error = given.error,
        retry_at = given.retry_at,
        had_retry = runs.had_retry OR given.state IN ('running', 'retrying'),
        skip_reason = given.skip_reason
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.token = given.token
      AND CASE runs.state
          WHEN 'armed' THEN true
          -- A run that its worker has accepted cannot be handed over.
          WHEN 'running' THEN given.state <> 'skipped'
              AND (given.state <> 'running' OR given.http_status IS NOT NULL)
          -- A late answer. It does not end a run again for which a retry was requested.
          WHEN 'retrying' THEN given.state = 'succeeded'
              OR given.state IN ('dead', 'cancelled') AND runs.attempt > runs.attempts_before
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
    INSERT INTO retries (job_id, due_at, tenant_id, partition, retry_at)
    SELECT job_id, due_at, tenant_id, partition, CASE state WHEN 'retrying' THEN retry_at END
    FROM changed WHERE state IN ('running', 'retrying')
    ON CONFLICT (job_id, due_at) DO UPDATE SET retry_at = excluded.retry_at
), ended AS (
    -- OFFSET 0 makes the plan look them up by key, even if it is made while the table is empty.
    DELETE FROM retries
    USING changed, LATERAL (
        SELECT ctid FROM retries
        WHERE retries.job_id = changed.job_id AND retries.due_at = changed.due_at
        OFFSET 0
    ) AS found
    WHERE changed.had_retry AND changed.state NOT IN ('retrying', 'running')
      AND retries.ctid = found.ctid
), listed_dead AS (
    INSERT INTO dead (tenant_id, due_at, job_id)
    SELECT tenant_id, due_at, job_id FROM changed WHERE state = 'dead'
    ON CONFLICT DO NOTHING
)
SELECT
    count(*) AS changed,
    CASE WHEN count(*) < cardinality($1::uuid[]) THEN array_agg(position) END AS positions
FROM changed;

-- name: note_stale
-- Records the outcomes whose run has another token by now.
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
