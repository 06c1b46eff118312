"""A broker's way to the active controller, and the controllers' way to each other."""
