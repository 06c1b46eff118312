"""What requests cost and use: counted, reported, and held to quotas."""
