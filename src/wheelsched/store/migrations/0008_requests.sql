-- Which request a run was made by: one that is sent again finds its runs, and nobody else's.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE runs ADD COLUMN request_id uuid;
COMMENT ON COLUMN runs.request_id IS
    'of a run that a person asked for with an Idempotency-Key; null for all others';
