"""The log engine: the only part of the broker that touches files."""
