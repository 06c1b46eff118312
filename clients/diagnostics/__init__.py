"""What clients say about themselves: warnings about what programs miss, and figures."""
