"""The controller core, a module per concern: a request becomes (records, response)."""
