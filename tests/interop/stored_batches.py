"""The batches in a broker's files, unchanged: they show the codec that a client really used, and its producer id."""

from __future__ import annotations

from pathlib import Path

from ottla.records.compression import Codec
from ottla.records.header import BatchHeader, read_header


def stored_batches(data_dir: Path, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The heads of all batches of a partition that fits into its first segment."""
    content = (data_dir / f"{topic}-{partition}" / f"{0:020}.log").read_bytes()
    headers: list[BatchHeader] = []
    position = 0
    while position < len(content):
        headers.append(read_header(content, position))
        position += headers[-1].size_bytes
    return headers


def assert_stored_with(data_dir: Path, topic: str, codec: str) -> None:
    """A batch that would not shrink may have been left uncompressed by its client; the large ones shrink."""
    headers = stored_batches(data_dir, topic)
    used = {Codec(header.codec).name.lower() for header in headers}
    assert codec in used
    assert used <= {codec, "none"}
    largest = max(headers, key=lambda header: header.size_bytes)
    assert Codec(largest.codec).name.lower() == codec
