"""A member of a consumer group: the state machine and what it needs, sans-IO."""
