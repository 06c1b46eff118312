"""The Raft core (KIP-595, KIP-996): messages in, effects out, no input or output of its own."""
