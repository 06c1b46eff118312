"""SASL as a client: what a login is given, what it says, and how it is done on a new socket."""
