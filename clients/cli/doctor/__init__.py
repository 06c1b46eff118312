"""`kraftrio doctor`: why this machine cannot use that cluster, step by step as a client does it."""
