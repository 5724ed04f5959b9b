"""What clients and brokers share of security: protocols, mechanisms, the messages of a SASL exchange.  Pure."""
