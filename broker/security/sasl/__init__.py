"""How clients log in: the server's side of SASL, sans-IO."""
