from __future__ import annotations

from pathlib import Path

import pytest

from ottla.runtime.installation import install_command
from ottla.testing import zookeeper
from ottla.testing.zookeeper import ZooKeeperUnavailable, find_zookeeper_jars, find_zookeeper_java, jars_in


def jars(place: Path, *names: str) -> None:
    for name in names:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_server_and_its_libraries_are_found_in_a_flat_folder(tmp_path: Path) -> None:
    jars(
        tmp_path,
        "zookeeper-3.9.5.jar",
        "zookeeper-jute-3.9.5.jar",
        "slf4j-api-2.0.17.jar",
        "netty-common-4.2.jar",
        "hadoop-client-3.jar",
    )
    assert [jar.name for jar in jars_in(tmp_path)] == [
        "zookeeper-3.9.5.jar",
        "zookeeper-jute-3.9.5.jar",
        "slf4j-api-2.0.17.jar",
        "netty-common-4.2.jar",
    ]


def test_jars_are_found_in_a_repository_s_folders(tmp_path: Path) -> None:
    jars(tmp_path, "org/zookeeper/3.9.5/zookeeper-3.9.5.jar", "org/zookeeper-jute/3.9.5/zookeeper-jute-3.9.5.jar")
    assert len(jars_in(tmp_path)) == 2


def test_release_of_zookeeper_that_is_named_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars(tmp_path, "lib/zookeeper-3.9.5.jar", "lib/zookeeper-jute-3.9.5.jar", "lib/logback-classic-1.jar")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert [jar.parent for jar in find_zookeeper_jars()] == [tmp_path / "lib"] * 3


def test_libraries_without_a_server_are_nothing(tmp_path: Path) -> None:
    jars(tmp_path, "zookeeper-jute-3.9.5.jar", "slf4j-api-2.0.17.jar")
    assert jars_in(tmp_path) == []


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zookeeper, "_places", lambda: iter([tmp_path]))
    with pytest.raises(ZooKeeperUnavailable, match="no jars of ZooKeeper") as failure:
        find_zookeeper_jars()
    assert failure.value.hint is not None
    assert install_command("spark") in failure.value.hint
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(zookeeper, "packaged_java", lambda: None)
    with pytest.raises(ZooKeeperUnavailable, match="no Java 17"):
        find_zookeeper_java()
