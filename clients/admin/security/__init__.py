"""Who gets in, and what they may do: ACLs, users, quotas and tokens, for administrators."""
