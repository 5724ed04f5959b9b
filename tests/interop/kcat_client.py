"""kcat (Debian's, librdkafka 2.0) as producer and consumer of one partition."""

from __future__ import annotations

import io
import subprocess

import pytest

from tests.interop.expected_records import Sent
from tests.peers.kcat import KcatUnavailable, find_kcat

DEADLINE_S = 120.0
# Lengths first, so that any bytes may follow; -1 is null.  Headers are text: name=value, joined by commas.
FORMAT = "%p %o %T %K %S %h\\n%k%s\\n"


def run_kcat(bootstrap: str, *arguments: str, input: bytes = b"") -> bytes:
    """Run kcat and return its output.  Skips the test where there is no kcat."""
    try:
        program = find_kcat()
    except KcatUnavailable as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [program, "-b", bootstrap, *arguments], input=input, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def produce(bootstrap: str, topic: str, *arguments: str, input: bytes = b"") -> None:
    run_kcat(bootstrap, "-P", "-t", topic, "-p", "0", *arguments, input=input)


def consume(bootstrap: str, topic: str, *arguments: str) -> list[tuple[int, Sent]]:
    """Offsets and records of partition 0 from its start to its end; headers as `parse_headers` reads them."""
    options = ("-C", "-q", "-e", "-t", topic, "-p", "0", "-o", "beginning", "-X", "check.crcs=true", "-f", FORMAT)
    output = io.BytesIO(run_kcat(bootstrap, *options, *arguments))
    read: list[tuple[int, Sent]] = []
    while line := output.readline():
        partition, offset, timestamp_ms, key_length, value_length, headers = line.rstrip(b"\n").split(b" ", 5)
        assert partition == b"0"
        key, value = _take(output, int(key_length)), _take(output, int(value_length))
        assert output.read(1) == b"\n"
        read.append((int(offset), Sent(key, value, parse_headers(headers.decode()), int(timestamp_ms))))
    return read


def parse_headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """Of values without commas; kcat writes null as NULL."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)


def _take(output: io.BytesIO, length: int) -> bytes | None:
    return None if length < 0 else output.read(length)
