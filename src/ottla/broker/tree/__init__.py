"""The broker's place in the tree: its backend, registration, session and lease, and how it follows changes."""
