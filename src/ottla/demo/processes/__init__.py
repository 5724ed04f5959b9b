"""The demo's child processes.  Each gets one task as JSON and reports its progress on its output."""
