"""Loads to put on a broker, and what the raw client says about one."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from bench.raw_client.build import build_raw_client

VALUE_BYTES: Final = 200
# What a run may take besides its own seconds: connecting, draining, and the client's own limit on silence (60 s).
OVERTIME_S: Final = 90
# A load that goes by count takes what it takes; a broker that stalls is found by the client's limit on silence.
COUNTED_S_MAX: Final = 600


class LoadFailed(RuntimeError):
    """The client or the broker failed: an error code, a closed connection, a wrong answer."""


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """Produce v7 with acks=all: one batch for one partition per request, partitions in turn."""

    batch_records: int
    in_flight: int
    partitions: int = 1
    seconds: float = 5
    warmup_s: float = 1
    requests: int = 0
    """Send exactly so many instead of going by time."""
    connections: int = 1
    """Each with `in_flight` requests of its own."""
    requests_per_s: float = 0
    """Begin so many, evenly, in all; latencies count from when a request was due.  0: as fast as answers come."""
    busy_poll_us: int = 0
    """So long the client looks for answers without sleeping.  It then takes a core, but waking it costs nothing."""
    leader_ports: tuple[int, ...] = ()
    """Of each partition.  With as many connections as partitions, or more, each then writes to one partition alone;
    with fewer to those in turn that its broker leads."""

    def arguments(self) -> list[str]:
        assert len(self.leader_ports) in (0, self.partitions), "a port for each partition, or none"
        leaders = [f"--leaders={','.join(map(str, self.leader_ports))}"] if self.leader_ports else []
        return [
            "produce",
            *leaders,
            f"--batch-records={self.batch_records}",
            f"--in-flight={self.in_flight}",
            f"--partitions={self.partitions}",
            f"--seconds={self.seconds}",
            f"--warmup-s={self.warmup_s}",
            f"--requests={self.requests}",
            f"--connections={self.connections}",
            f"--requests-per-s={self.requests_per_s}",
            f"--busy-poll-us={self.busy_poll_us}",
            f"--value-bytes={VALUE_BYTES}",
            "--acks=-1",
        ]


@dataclass(frozen=True, slots=True)
class FetchLoad:
    """Fetch v11 of partition 0 from its start to its end, again and again, one request in flight."""

    partition_bytes_max: int
    seconds: float = 5
    warmup_s: float = 1
    is_committed: bool = False
    """Only records of transactions that are committed, and below the last stable offset."""
    passes: int = 0
    """Read the partition so often, instead of going by time."""

    def arguments(self) -> list[str]:
        return [
            "fetch",
            f"--partition-bytes-max={self.partition_bytes_max}",
            f"--seconds={self.seconds}",
            f"--warmup-s={self.warmup_s}",
            f"--isolation={int(self.is_committed)}",
            f"--passes={self.passes}",
        ]


@dataclass(frozen=True, slots=True)
class TransactionLoad:
    """Transactions of one batch each, by KIP-890's protocol.

    Of the result requests are transactions, and latencies those of their ends.
    """

    records: int
    producers: int
    """Each with its id, its connection and one transaction at a time; partitions in turn."""
    partitions: int = 1
    seconds: float = 5
    warmup_s: float = 1
    requests: int = 0
    """Commit exactly so many, instead of going by time."""

    def arguments(self) -> list[str]:
        return [
            "transactions",
            f"--batch-records={self.records}",
            f"--connections={self.producers}",
            f"--partitions={self.partitions}",
            f"--seconds={self.seconds}",
            f"--warmup-s={self.warmup_s}",
            f"--requests={self.requests}",
            f"--value-bytes={VALUE_BYTES}",
        ]


Load = ProduceLoad | FetchLoad | TransactionLoad


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the client measured in its window; the totals also count warm-up and draining."""

    seconds: float
    requests: float
    records: float
    bytes: float
    requests_per_s: float
    records_per_s: float
    mb_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    client_cpu_seconds: float
    client_cpu_share: float
    """Of one core: near 1.0 the client itself would be what is measured."""
    requests_total: float
    records_total: float


def put_load(load: Load, port: int, topic: str, host: str = "127.0.0.1", *, ca: Path | None = None) -> LoadResult:
    """Run the load to its end.  Raises LoadFailed on any error code or failure.

    `ca`: connect with TLS to a broker whose certificate this authority has signed, for `host`.
    """
    words = [word for argument in load.arguments() for word in argument.split("=", 1)]
    if ca is not None:
        words += ["--ca", str(ca)]
    client = build_raw_client(with_tls=ca is not None)
    command = [str(client), *words, "--host", host, "--port", str(port), "--topic", topic]
    goes_by_count = (load.passes if isinstance(load, FetchLoad) else load.requests) > 0
    timeout_s = COUNTED_S_MAX if goes_by_count else load.seconds + load.warmup_s
    timeout_s += OVERTIME_S
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{' '.join(words)}: not done after {timeout_s:g} s") from None
    if done.returncode != 0:
        detail = done.stderr.strip() or f"error codes {json.loads(done.stdout)['errors']}"
        raise LoadFailed(f"{' '.join(words)}: {detail}")
    raw = json.loads(done.stdout)
    return LoadResult(**{field.name: float(raw[field.name]) for field in fields(LoadResult)})
