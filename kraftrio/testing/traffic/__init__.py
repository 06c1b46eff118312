"""Who asks whom for what: the frames between clients and nodes, on their way."""
