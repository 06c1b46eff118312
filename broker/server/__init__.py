"""A server of the Kafka protocol that knows no API: listeners, connections, dispatch."""
