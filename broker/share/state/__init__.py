"""The core of share partitions: the state of each record in flight, sans-IO."""
