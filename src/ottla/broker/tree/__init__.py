"""The broker's place in the tree: its home, registration, session and lease, and how it follows changes."""
