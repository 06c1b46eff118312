"""Records of `__consumer_offsets`: keys by version, and the values of each kind of group."""
