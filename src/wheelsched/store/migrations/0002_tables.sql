SET LOCAL ROLE wheelsched_owner;

CREATE TABLE tenants (
    tenant_id      uuid PRIMARY KEY,
    name           text NOT NULL UNIQUE,
    weight         integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    job_quota      integer NOT NULL DEFAULT 100000 CHECK (job_quota >= 0),
    requests_per_second integer NOT NULL DEFAULT 1000 CHECK (requests_per_second > 0),
    secrets        text[] NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN tenants.secrets IS 'of webhook signatures, newest first; two while rotating';

CREATE TABLE tokens (
    digest         bytea PRIMARY KEY,
    tenant_id      uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    name           text NOT NULL,
    scopes         text[] NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at     timestamptz
);
CREATE INDEX tokens_of_tenant ON tokens (tenant_id);

-- How many jobs each tenant has, to hold against its quota without counting them. Whoever adds or
-- removes jobs changes it in the same transaction, last of all: it is the one row that all who
-- register for a tenant wait for.
CREATE TABLE job_counts (
    tenant_id      uuid PRIMARY KEY REFERENCES tenants,
    jobs           bigint NOT NULL
) WITH (fillfactor = 10);

-- Wide and cold: read when a run is armed, written by people.
CREATE TABLE jobs (
    job_id         uuid PRIMARY KEY,
    tenant_id      uuid NOT NULL,
    partition      smallint NOT NULL CHECK (partition BETWEEN 0 AND 255),
    name           text NOT NULL,
    state          text NOT NULL CHECK (state IN ('active', 'paused', 'finished')),
    version        integer NOT NULL DEFAULT 1,
    definition     json NOT NULL,
    tags           jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    paused_at      timestamptz,
    UNIQUE (tenant_id, name)
);
COMMENT ON COLUMN jobs.tenant_id IS
    'that it exists is checked once for all jobs of a registration, by job_counts';
COMMENT ON COLUMN jobs.definition IS 'json and not jsonb: the payload is kept byte for byte';
CREATE INDEX one_offs_by_end ON jobs (updated_at, job_id)
    WHERE state = 'finished' AND definition -> 'spec' ->> 'kind' = 'at';

-- Narrow and hot: the next due time of each active job, and no other.
CREATE TABLE timers (
    job_id         uuid PRIMARY KEY,
    partition      smallint NOT NULL,
    version        integer NOT NULL,
    due_at         timestamptz NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX timers_of_partition ON timers (partition, due_at);

-- One row per (job, due time). It is inserted once and updated in place: each page keeps room for
-- a second version of all its rows, and no index covers a column that changes.
CREATE TABLE runs (
    job_id         uuid NOT NULL,
    due_at         timestamptz NOT NULL,
    tenant_id      uuid NOT NULL,
    token          bigint,
    shard          uuid,
    armed_at       timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    retry_at       timestamptz,
    heartbeat_at   timestamptz,
    backfill_of    timestamptz,
    missed_since   timestamptz,
    lateness_us    bigint,
    attempt        integer NOT NULL DEFAULT 0,
    attempts_before integer NOT NULL DEFAULT 0,
    missed_count   integer,
    partition      smallint NOT NULL,
    http_status    smallint,
    had_retry      boolean NOT NULL DEFAULT false,
    state          text NOT NULL,
    trigger        text NOT NULL DEFAULT 'schedule',
    lane           text NOT NULL DEFAULT 'on_time',
    skip_reason    text,
    error          text,
    PRIMARY KEY (job_id, due_at)
) PARTITION BY RANGE (due_at);
COMMENT ON COLUMN runs.had_retry IS 'it is in retries, or was until it ended';
CREATE INDEX runs_of_partition ON runs (partition, due_at);

-- One row per attempt that did not end its run, and per outcome that came too late to count.
CREATE TABLE attempts (
    job_id         uuid NOT NULL,
    due_at         timestamptz NOT NULL,
    token          bigint NOT NULL,
    tenant_id      uuid NOT NULL,
    attempt        integer NOT NULL,
    shard          uuid,
    started_at     timestamptz,
    finished_at    timestamptz,
    outcome        text NOT NULL CHECK (outcome IN ('failed', 'stale')),
    http_status    smallint,
    error          text,
    PRIMARY KEY (job_id, due_at, token, outcome)
) PARTITION BY RANGE (due_at);

-- The runs that are live and not simply armed for their first attempt: they are running, wait for
-- a further attempt, or for one that a person asked for. Few, so they may have an index of their
-- own.
CREATE TABLE retries (
    job_id         uuid NOT NULL,
    due_at         timestamptz NOT NULL,
    tenant_id      uuid NOT NULL,
    partition      smallint NOT NULL,
    retry_at       timestamptz,
    PRIMARY KEY (job_id, due_at)
);
COMMENT ON COLUMN retries.retry_at IS 'null while an attempt is armed or running';
CREATE INDEX retries_of_partition ON retries (partition, retry_at);

-- The runs out of attempts, so that they can be listed without an index on the state of runs.
CREATE TABLE dead (
    tenant_id      uuid NOT NULL,
    due_at         timestamptz NOT NULL,
    job_id         uuid NOT NULL,
    PRIMARY KEY (tenant_id, due_at, job_id)
);

-- The row exists, with this fence: the shard may write. A takeover deletes it. Handing a
-- partition over raises the fence, so that a statement sent before that does nothing after it.
-- Both wait for the statements in flight, because both change a key; a renewal changes none.
CREATE TABLE shards (
    shard_id       uuid PRIMARY KEY,
    fence          integer NOT NULL DEFAULT 1,
    renewals       bigint NOT NULL DEFAULT 0,
    expires_at     timestamptz NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_leaving     boolean NOT NULL DEFAULT false,
    address        text,
    UNIQUE (shard_id, fence)
) WITH (fillfactor = 50);

CREATE TABLE partitions (
    partition      smallint PRIMARY KEY CHECK (partition BETWEEN 0 AND 255),
    owner          uuid REFERENCES shards ON DELETE SET NULL,
    epoch          integer NOT NULL DEFAULT 0,
    live_since     timestamptz NOT NULL DEFAULT '-infinity',
    marked_by      bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON COLUMN partitions.live_since IS
    'no live run has an earlier due time, unless it is in retries';
COMMENT ON COLUMN partitions.marked_by IS 'the token that live_since was last raised with';
CREATE INDEX partitions_of_owner ON partitions (owner);
INSERT INTO partitions (partition) SELECT generate_series(0, 255);

CREATE TABLE audit (
    audit_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id      uuid,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor          text NOT NULL,
    verb           text NOT NULL,
    subject        text NOT NULL,
    detail         jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_of_tenant ON audit (tenant_id, at);
