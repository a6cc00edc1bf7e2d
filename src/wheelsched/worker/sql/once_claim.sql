-- Waits for whoever claimed the key before and has not committed; true when nobody has.
INSERT INTO wheelsched_once (key) VALUES ($1) ON CONFLICT DO NOTHING RETURNING true
