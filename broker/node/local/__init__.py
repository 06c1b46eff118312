"""Several nodes on one machine, and the files of a secure one."""
