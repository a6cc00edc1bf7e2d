-- Fails if an earlier statement has aborted the transaction: COMMIT would silently roll back.
SELECT 1
