-- name: make_ledger
CREATE SCHEMA IF NOT EXISTS wheelsched;
CREATE TABLE IF NOT EXISTS wheelsched.migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    digest      text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: has_ledger
SELECT to_regclass('wheelsched.migrations') IS NOT NULL;

-- name: lock_ledger
LOCK TABLE wheelsched.migrations IN ACCESS EXCLUSIVE MODE;

-- name: read_ledger
SELECT number, name, digest FROM wheelsched.migrations ORDER BY number;

-- name: use_schema
SET LOCAL search_path = wheelsched;

-- name: become_owner
SET LOCAL ROLE wheelsched_owner;

-- name: note_migration
INSERT INTO wheelsched.migrations (number, name, digest) VALUES ($1, $2, $3);
