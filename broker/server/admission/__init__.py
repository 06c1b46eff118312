"""What a connection goes through before its first request is served: limits, TLS, the login."""
