"""The consumer: what it fetches, its positions, and its membership of a group."""
