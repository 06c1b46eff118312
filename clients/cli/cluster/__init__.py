"""`kraftrio cluster` and `kraftrio reassign`: brokers, health, quorum, where replicas are."""
