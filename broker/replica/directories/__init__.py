"""Log directories of replicas: which log lies where, and those that are full or have failed."""
