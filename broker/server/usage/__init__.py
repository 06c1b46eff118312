"""What requests cost and use, counted, told, and held to quotas."""
