"""Verification of transactions with their coordinators, before a first batch is appended."""
