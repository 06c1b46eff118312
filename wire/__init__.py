"""The Kafka binary protocol: bytes to typed values and back, without any input or output."""
