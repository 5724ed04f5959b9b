"""What is asked: each function is one conversation with a fresh broker's topics and groups of its own."""
