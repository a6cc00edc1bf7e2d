-- A shard that releases a partition has sent nothing of what it leaves armed. After a crash nobody
-- knows. The next owner tells the two apart by the epoch in a run's token.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE partitions ADD COLUMN released_epoch integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN partitions.released_epoch IS
    'the last epoch whose owner released the partition; 0: none did';
