"""The transactional ids of a `__transaction_state` partition: who writes, and how it ends."""
