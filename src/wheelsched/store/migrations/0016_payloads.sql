-- Payloads of runs that were triggered with one of their own. They are few, and apart from runs, so
-- that no other run is wider or dearer for them.
SET LOCAL ROLE wheelsched_owner;

CREATE TABLE payloads (
    job_id         uuid NOT NULL,
    due_at         timestamptz NOT NULL,
    tenant_id      uuid NOT NULL,
    payload        json NOT NULL,
    PRIMARY KEY (job_id, due_at)
);
COMMENT ON COLUMN payloads.payload IS 'json and not jsonb: it is sent byte for byte';
CREATE INDEX payloads_by_age ON payloads (due_at);

GRANT SELECT ON payloads TO wheelsched_shard;
GRANT SELECT, INSERT ON payloads TO wheelsched_api;
ALTER TABLE payloads ENABLE ROW LEVEL SECURITY;
CREATE POLICY shard ON payloads TO wheelsched_shard USING (true);
CREATE POLICY tenant ON payloads TO wheelsched_api USING (tenant_id = current_tenant());
