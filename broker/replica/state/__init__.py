"""What one replica is, and what follows from requests and metadata; sans-IO."""
