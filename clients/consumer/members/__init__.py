"""Members of groups, as the consumer runs them: of the classic protocol, and of KIP-848."""
