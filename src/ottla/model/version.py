"""The version of this package.  Apart from the package itself, which names what the client is made of."""

__version__ = "0.1.0"
