from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.processes.recorded import (
    RUNNING_FILE,
    BrokerProcess,
    descriptor_of,
    fingerprint_of,
    has_ended,
    read_running,
    start_ticks_of,
    write_running,
)
from ottla.model.identifiers import NodeId
from ottla.runtime.posix_disk import PosixDisk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="--processes needs Linux")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.communicate()


def recorded(pid: int) -> BrokerProcess:
    ticks = start_ticks_of(pid)
    assert ticks is not None
    return BrokerProcess(NodeId(3), pid, ticks, ("ottla", "serve"))


def test_processes_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_running(PosixDisk(), str(tmp_path)) == []
    found = recorded(os.getpid())._replace(fingerprint="of it", is_ready=True)
    write_running(PosixDisk(), str(tmp_path), [found])
    assert read_running(PosixDisk(), str(tmp_path)) == [found]


def test_processes_of_another_boot_are_none(tmp_path: Path) -> None:
    write_running(PosixDisk(), str(tmp_path), [recorded(os.getpid())])
    path = tmp_path / RUNNING_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
    assert read_running(PosixDisk(), str(tmp_path)) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"boot_id": 1}'])
def test_damaged_record_names_no_process(tmp_path: Path, content: str) -> None:
    (tmp_path / RUNNING_FILE).write_text(content)
    assert read_running(PosixDisk(), str(tmp_path)) == []


def test_descriptor_is_readable_when_the_process_has_ended(child: subprocess.Popen[bytes]) -> None:
    descriptor = descriptor_of(recorded(child.pid))
    assert descriptor is not None
    assert not has_ended(descriptor, within_s=0)
    child.kill()
    assert has_ended(descriptor, within_s=60)
    os.close(descriptor)
    # It is not reaped yet: its id is there, and it runs no more.
    assert start_ticks_of(child.pid) is None


def test_process_that_has_the_id_of_a_recorded_one_is_another(child: subprocess.Popen[bytes]) -> None:
    found = recorded(child.pid)
    assert descriptor_of(found._replace(start_ticks=found.start_ticks - 1)) is None


def test_process_that_was_reaped_has_no_descriptor(child: subprocess.Popen[bytes]) -> None:
    found = recorded(child.pid)
    child.communicate(b"\n")
    assert descriptor_of(found) is None


def test_process_that_another_version_recorded_is_found_and_is_none_to_continue_with(tmp_path: Path) -> None:
    found = recorded(os.getpid())._replace(fingerprint="of it", is_ready=True)
    write_running(PosixDisk(), str(tmp_path), [found])
    path = tmp_path / RUNNING_FILE
    content = json.loads(path.read_text())
    for name in ("fingerprint", "is_ready"):
        del content["processes"][0][name]
    path.write_text(json.dumps(content))
    assert read_running(PosixDisk(), str(tmp_path)) == [found._replace(fingerprint="", is_ready=False)]


def test_fingerprint_tells_versions_files_and_settings_of_the_environment_apart() -> None:
    found = {
        fingerprint_of("1", b"", {}),
        fingerprint_of("2", b"", {}),
        fingerprint_of("1", b"log.segment.bytes=1", {}),
        fingerprint_of("1", b"", {"OTTLA_LOG_SEGMENT_BYTES": "1"}),
        fingerprint_of("1", b"", {"OTTLA_LOG_SEGMENT_BYTES": "2"}),
    }
    assert len(found) == 5
    assert fingerprint_of("1", b"", {"TERM": "dumb"}) in found
