"""Requests to calls to responses, a module per family of APIs. No handler imports another."""
