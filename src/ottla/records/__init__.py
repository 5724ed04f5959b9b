"""The record batch (format v2) as bytes: header, checksum, varints, compression, single records."""
