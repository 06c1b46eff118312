"""What the controller decides about topics: creation, deletion, placement and reassignment."""
