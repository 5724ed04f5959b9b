"""Groups: members, generations, committed offsets.  Pure: it decides and returns records; the shell appends and
sends."""
