"""The replicas hosted here: their state, the requests that wait for them, ISRs, directories."""
