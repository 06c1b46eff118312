"""The records of the metadata log and the immutable image that they make."""
