"""How much each client may ask of a broker: rates, whose they are, and how long to wait."""
