"""Share partitions: what a share group has been given of the partitions led here (KIP-932)."""
