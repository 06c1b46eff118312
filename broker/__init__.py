"""The broker: logs on disk, replicas, coordinators, request handlers and the server around them."""
