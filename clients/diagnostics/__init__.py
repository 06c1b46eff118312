"""What clients tell of themselves: warnings about what programs miss, and figures."""
