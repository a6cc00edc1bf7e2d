-- A job may have a hundred thousand runs that wait. Whoever takes over a partition reads its
-- retries in pages, by due time; a hint about a job has those read that came since the last read.
-- Each needs an index of its own: without them both read all retries that there are.
SET LOCAL ROLE wheelsched_owner;

CREATE INDEX retries_of_sweep ON retries (partition, due_at, job_id);
CREATE INDEX retries_of_job ON retries (job_id, retry_at);

-- How many runs of a job are in retries, up to a bound. Of a job that the caller has locked, which
-- is its own: without a look at the tenant of each row the index is enough.
CREATE FUNCTION count_waiting(wanted uuid, most integer) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = wheelsched, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT count(*) FROM (SELECT FROM retries WHERE job_id = wanted LIMIT most) AS waiting
$$;
REVOKE ALL ON FUNCTION count_waiting(uuid, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_waiting(uuid, integer) TO wheelsched_api;

-- The earliest of what waits to be armed in each partition: the head of an index, however many
-- timers there are. Nothing of any tenant, so that every process may ask whether it is late.
CREATE FUNCTION oldest_unarmed(wanted smallint[])
    RETURNS TABLE (partition smallint, due_at timestamptz, retry_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = wheelsched, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT given.partition, timer.due_at, retry.retry_at
    FROM unnest(wanted) AS given (partition)
    LEFT JOIN LATERAL (
        SELECT timers.due_at FROM timers
        WHERE timers.partition = given.partition AND timers.due_at < 'infinity'
        ORDER BY timers.due_at LIMIT 1
    ) AS timer ON true
    LEFT JOIN LATERAL (
        SELECT retries.retry_at FROM retries
        WHERE retries.partition = given.partition AND retries.retry_at IS NOT NULL
        ORDER BY retries.retry_at LIMIT 1
    ) AS retry ON true
$$;
REVOKE ALL ON FUNCTION oldest_unarmed(smallint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION oldest_unarmed(smallint[]) TO wheelsched_shard, wheelsched_api;
