"""Batches, records and findings as lines and as JSON objects."""

from __future__ import annotations

import base64

from ottla.maintenance.inspect import DumpedBatch, Finding
from ottla.observe.events import line_of
from ottla.records.compression import Codec
from ottla.records.record import Record

JsonObject = dict[str, object]


def batch_object(batch: DumpedBatch) -> JsonObject:
    """A batch's position and header; producer fields only for idempotent producers."""
    header = batch.header
    found: JsonObject = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "position": batch.position,
        "size_bytes": header.size_bytes,
        "codec": _codec_name(header.codec),
        "leader_epoch": header.leader_epoch,
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
    }
    if header.producer_id >= 0:
        found["producer_id"] = header.producer_id
        found["producer_epoch"] = header.producer_epoch
        found["base_sequence"] = header.base_sequence
    if header.is_transactional:
        found["is_transactional"] = True
    if header.is_control:
        found["is_control"] = True
    if batch.marker is not None:
        found["marker"] = "commit" if batch.marker.commits else "abort"
        found["coordinator_epoch"] = batch.marker.coordinator_epoch
    return found


def batch_line(batch: DumpedBatch) -> str:
    return line_of("batch", batch_object(batch))


def record_object(record: Record) -> JsonObject:
    """A record; bytes that are not UTF-8 are in a base64 field instead."""
    found: JsonObject = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    found.update(_bytes_field("key", record.key))
    found.update(_bytes_field("value", record.value))
    found["headers"] = [{"name": name, **_bytes_field("value", value)} for name, value in record.headers]
    return found


def record_line(record: Record) -> str:
    """A record for people: long values are cut, and unprintable bytes escaped."""
    facts: JsonObject = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    facts |= {"key": record.key, "value": record.value}
    facts |= {f"header[{number}]": f"{name}: {value!r}" for number, (name, value) in enumerate(record.headers)}
    return line_of("record", facts)


def finding_line(finding: Finding) -> str:
    facts: JsonObject = {"path": finding.path}
    if finding.position >= 0:
        facts["position"] = finding.position
    if finding.offset >= 0:
        facts["offset"] = finding.offset
    facts["problem"] = finding.problem
    return line_of(finding.severity.value, facts)


def _bytes_field(name: str, value: bytes | None) -> JsonObject:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def _codec_name(number: int) -> str:
    try:
        return Codec(number).name.lower()
    except ValueError:
        return f"unknown-{number}"
