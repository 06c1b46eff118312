"""What the mechanisms of SASL say: bytes to values and back, and the keys of SCRAM."""
