"""What one consumer group is made of: members, what they subscribe to, who has which partition."""
