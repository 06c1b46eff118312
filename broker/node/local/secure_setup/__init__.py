"""What a secured node or cluster needs before its first start: certificates, users, properties."""
