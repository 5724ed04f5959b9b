"""What it costs a broker to have its logs counted."""
