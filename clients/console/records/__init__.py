"""Records of a topic: read, searched among, and made readable."""
