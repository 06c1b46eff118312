"""Declares messages and compiles their encoders and decoders, a pair for each version."""
