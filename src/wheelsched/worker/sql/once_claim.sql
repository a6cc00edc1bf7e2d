-- Waits for an uncommitted claim of the same key. Returns true if the key was free.
INSERT INTO wheelsched_once (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true
