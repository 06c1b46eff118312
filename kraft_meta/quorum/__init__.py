"""The Trio shell of the metadata quorum, and the quorum's messages and batches as bytes."""
