"""`kraftrio perf`: how fast a cluster takes and gives records, and what another one does."""
