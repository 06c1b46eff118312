"""What the nodes of a cluster have on their disks, to go on from: taken, saved, loaded."""
