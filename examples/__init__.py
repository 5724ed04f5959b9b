"""Programs to copy: consumers that stay up, each with its README part (README.md)."""
