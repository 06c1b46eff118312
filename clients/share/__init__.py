"""The share consumer: members of a share group work on a topic's records together (KIP-932)."""
