"""The producer: batches, retries in order, idempotence."""
