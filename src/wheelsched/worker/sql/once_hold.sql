-- Fails in a transaction that a failed statement has spoiled: committing it would roll back, and
-- not say so.
SELECT 1
