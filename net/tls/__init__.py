"""TLS on sockets: Kafka's `ssl.*` settings, key stores, contexts, and encrypted sockets."""
