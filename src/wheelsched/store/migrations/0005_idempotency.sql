-- Requests by the key that their sender gave them: answered once, however often they are sent.
SET LOCAL ROLE wheelsched_owner;

CREATE TABLE idempotency (
    tenant_id      uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    key            text NOT NULL,
    digest         bytea NOT NULL,
    begun_at       timestamptz NOT NULL,
    tried_at       timestamptz NOT NULL,
    status         smallint,
    headers        json,
    body           bytea,
    PRIMARY KEY (tenant_id, key)
);
COMMENT ON COLUMN idempotency.tried_at IS 'when the latest sending began to answer it; its ticket';
COMMENT ON COLUMN idempotency.status IS 'null while it is being answered';
CREATE INDEX idempotency_by_age ON idempotency (begun_at);

GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency TO wheelsched_api;
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON idempotency TO wheelsched_api USING (tenant_id = current_tenant());
