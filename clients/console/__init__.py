"""The console: a cluster, ours or Apache Kafka's, as pages in a browser."""
