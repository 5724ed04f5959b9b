"""What the demo runs as processes of their own.  Each takes one task as JSON and tells what it does on its output."""
