"""Compaction: the newest value of each key stays, at its offset; what it replaces goes.

A clean works on closed segments only and writes new files beside them (`cleaner`), in another process if need be; the
log takes them in place of the old ones in one step that a crash completes or undoes (`swap`).
"""
