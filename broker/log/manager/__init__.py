"""The logs of one broker in their directories."""
