"""The followers' side of replication: a task for each leader broker, and its cores."""
