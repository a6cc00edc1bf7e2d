-- A run of a queue that was due before its partition was released had reached its queue: it waits
-- for a worker, and has not misfired.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE partitions ADD COLUMN released_at timestamptz;
COMMENT ON COLUMN partitions.released_at IS
    'when its owner released the partition; NULL: none did';
