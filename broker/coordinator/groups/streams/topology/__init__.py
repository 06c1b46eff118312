"""The topology of a Kafka Streams application, and what the topics of the cluster let run of it."""
