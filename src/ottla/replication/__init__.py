"""Replication of one partition: leader, followers, in-sync replicas, high watermark.  Pure: no bytes, clock or I/O."""
