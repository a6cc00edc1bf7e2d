DELETE FROM wheelsched_once WHERE key IN (
    SELECT key FROM wheelsched_once
    WHERE done_at < clock_timestamp() - make_interval(days => $1)
    ORDER BY done_at LIMIT $2
)
