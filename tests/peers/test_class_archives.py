"""An archive of classes is kept when a JVM accepts it, and no JVM needs one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.peers.class_archives import make_archive, options_of
from tests.peers.kafka_jars import KafkaUnavailable, find_java


@pytest.fixture(scope="module")
def java() -> Path:
    try:
        return Path(find_java())
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


def test_archive_of_a_jvm_that_ended_is_mapped_by_the_next(java: Path, tmp_path: Path) -> None:
    archive = tmp_path / "cache" / "classes.jsa"
    assert options_of(archive) == ()

    def run(options: Sequence[str]) -> str:
        subprocess.run([str(java), *options, "-cp", str(tmp_path), "-version"], capture_output=True, check=True)
        return str(tmp_path)

    make_archive(archive, java, run)
    mapped = [str(java), *options_of(archive), "-Xshare:on", "-cp", str(tmp_path), "-version"]
    assert subprocess.run(mapped, capture_output=True, check=True).stdout == b""


def test_archive_that_java_refuses_is_not_kept(java: Path, tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"

    def run(options: Sequence[str]) -> str:
        _, _, path = options[0].partition("=")
        Path(path).write_bytes(b"of a JVM that was killed")
        return str(tmp_path)

    make_archive(archive, java, run)
    assert options_of(archive) == ()
