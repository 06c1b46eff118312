"""What lets others see into a node: its log of events, figures, disks, the event loop."""
