"""The metadata log of a node on disk: segments, snapshots, and the election state beside them."""
