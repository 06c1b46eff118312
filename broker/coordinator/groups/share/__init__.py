"""Share groups (KIP-932): members that share partitions, whose states the share coordinator keeps."""
