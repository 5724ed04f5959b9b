"""Logins and TLS of the broker: certificates, mechanisms, credentials."""
