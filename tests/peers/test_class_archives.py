"""An archive of classes is kept when a JVM accepts it, and no JVM needs one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import quick_java
from tests.peers.class_archives import make_archive, options_of
from tests.peers.kafka_jars import KafkaUnavailable, find_java
from tests.quick_java import SPARK_OPTIONS, use_quick_java


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


def test_program_that_starts_spark_maps_the_archive_once_it_is_there(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    monkeypatch.setattr(quick_java, "spark_archive", lambda _: archive)
    monkeypatch.delenv(SPARK_OPTIONS, raising=False)
    use_quick_java()
    assert str(archive) not in os.environ[SPARK_OPTIONS]
    archive.touch()
    use_quick_java()
    assert f"-XX:SharedArchiveFile={archive}" in os.environ[SPARK_OPTIONS]
    monkeypatch.setenv(SPARK_OPTIONS, "-Xmx1G")
    use_quick_java()
    assert os.environ[SPARK_OPTIONS] == "-Xmx1G"
