"""The commands of `kraftrio` that are clients of a cluster, ours or Apache Kafka's."""
