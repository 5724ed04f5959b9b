"""Compaction: the newest value of each key is kept, at its offset; older ones are removed.

A clean works on closed segments only and writes new files beside them (`cleaner`), in another process if need be; the
log replaces the old ones by them in one step that a crash completes or undoes (`swap`).
"""
