"""Who a client is by its certificate."""
