"""How a client secures its connections: settings and their names, TLS, logins, tokens."""
