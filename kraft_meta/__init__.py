"""The metadata quorum: Raft core, controller, metadata image and the Trio service around them."""
