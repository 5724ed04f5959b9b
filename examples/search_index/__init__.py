"""A search index over application logs, which stores its own offsets in the transaction of what it indexes."""
