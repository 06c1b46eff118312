"""Log directories of a stopped broker, ours or Apache Kafka's: read and checked."""
