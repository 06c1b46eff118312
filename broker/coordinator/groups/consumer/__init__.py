"""Consumer groups (KIP-848), with the members of the classic protocol that are in them."""
