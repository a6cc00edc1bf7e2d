-- name: read_replication
-- An account without the rights of pg_monitor sees that there are standbys, but not their lag.
SELECT
    count(*)::integer AS standbys,
    current_setting('synchronous_standby_names') <> '' AS is_synchronous,
    max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn))::bigint AS lag_bytes
FROM pg_stat_replication;
