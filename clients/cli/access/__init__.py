"""`kraftrio acl`, `user` and `quota`: who may do what, who logs in, and how much each may use."""
