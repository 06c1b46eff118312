"""Machines in memory, in virtual time: whole nodes, disks, networks and clocks."""
