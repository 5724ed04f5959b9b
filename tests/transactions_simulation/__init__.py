"""Transactions under faults, in virtual time: `./dev sim --transactions`."""
