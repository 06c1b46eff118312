"""Transactions: what their coordinator is asked, and the markers that end them."""
