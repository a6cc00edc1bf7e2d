-- A load reads the index of the horizon alone. The rows of its timers lie on as many pages among
-- those of millions of others: with ten million, visiting them was six sevenths of a load.
--
-- While the index is made (15 seconds for ten million timers) they can be read, but not written:
-- nothing is armed or registered.
SET LOCAL ROLE wheelsched_owner;

CREATE INDEX timers_of_horizon ON timers (partition, due_at) INCLUDE (job_id, version);
DROP INDEX timers_of_partition;
