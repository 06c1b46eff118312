"""What every layer uses and none owns: values that come later, deadlines, clocks, threads, logging.

Imports nothing of ours.
"""
