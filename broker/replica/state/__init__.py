"""What one replica is, and what follows from what it hears; sans-IO."""
