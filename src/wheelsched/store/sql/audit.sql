-- name: note
INSERT INTO audit (tenant_id, actor, verb, subject, detail) VALUES ($1, $2, $3, $4, $5);
