"""Fetch, for consumers and followers: what is asked, what is read, what is answered."""
