"""`kraftrio perf`: how fast records are written to a cluster and read, also beside another one."""
