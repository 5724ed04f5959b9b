"""What access rules cost a broker."""
