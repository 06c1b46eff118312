"""Declarations of Kafka's messages, one module per family of APIs."""
