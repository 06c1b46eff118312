"""How a node's listeners are secured, how it dials others, and the first users."""
