"""The replicas hosted here: their state, who waits for them, ISRs, log directories."""
