"""Group coordination: state machines, committed offsets and the runtime that persists them."""
