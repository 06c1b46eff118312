"""Which APIs there are, how requests and responses are framed, and answers in older versions."""
