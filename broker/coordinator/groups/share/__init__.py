"""Share groups (KIP-932): members share partitions; the share coordinator keeps their states."""
