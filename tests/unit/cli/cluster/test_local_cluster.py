"""The ports, racks and settings of a local cluster: chosen once, then as they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.cluster import up as cluster_up
from ottla.cli.cluster.local_cluster import claimed_local_cluster, planned
from ottla.client.wire.destination.local_cluster import (
    LocalCluster,
    LocalClusterError,
    read_local_cluster,
    write_local_cluster,
)

SAVED = LocalCluster(2181, (9092, 9093, 9094))
WITHOUT_ZOOKEEPER = SAVED._replace(zookeeper_port=None)


def test_first_cluster_has_three_brokers_from_kafkas_port_on() -> None:
    assert planned(None, None, None, None) == WITHOUT_ZOOKEEPER


def test_zookeeper_is_there_when_a_flag_demands_it_and_stays() -> None:
    assert planned(None, None, None, None, has_zookeeper=True) == SAVED
    assert planned(None, None, None, 2181) == SAVED
    assert planned(None, None, None, None, is_secure=True) == SAVED._replace(is_secure=True)
    assert planned(SAVED, None, None, None) == SAVED


def test_cluster_without_a_zookeeper_gets_none_later() -> None:
    with pytest.raises(LocalClusterError, match="made without a ZooKeeper"):
        planned(WITHOUT_ZOOKEEPER, None, None, None, has_zookeeper=True)


def test_ports_follow_the_first_one() -> None:
    assert planned(None, 2, 5000, 4000) == LocalCluster(4000, (5000, 5001))


def test_port_0_is_a_free_one_for_all() -> None:
    assert planned(None, 2, 0, None) == LocalCluster(None, (0, 0))
    assert planned(None, 2, 0, None, has_zookeeper=True) == LocalCluster(0, (0, 0))


def test_saved_ports_are_used_again() -> None:
    assert planned(LocalCluster(7, (5, 9)), None, None, None) == LocalCluster(7, (5, 9))


def test_flags_win_over_saved_ports() -> None:
    assert planned(SAVED, None, 6000, 0) == LocalCluster(0, (6000, 6001, 6002))


def test_cluster_grows_behind_its_last_port() -> None:
    assert planned(LocalCluster(7, (5, 9)), 4, None, None).ports == (5, 9, 10, 11)


def test_cluster_does_not_shrink() -> None:
    with pytest.raises(LocalClusterError, match="has 3 brokers, and 2 would leave out"):
        planned(SAVED, 2, None, None)


def test_secure_cluster_stays_so_and_a_plain_one_does_not_become_one() -> None:
    secure = planned(None, None, None, None, is_secure=True)
    assert secure.is_secure
    assert planned(secure, None, None, None).is_secure
    with pytest.raises(LocalClusterError, match="made without --secure"):
        planned(SAVED, None, None, None, is_secure=True)


def test_port_beyond_the_last_is_refused() -> None:
    with pytest.raises(LocalClusterError, match="port 65536 is above 65535"):
        planned(None, 3, 65534, None)


@pytest.mark.parametrize("cluster", [SAVED, WITHOUT_ZOOKEEPER])
def test_directory_keeps_what_was_written(tmp_path: Path, cluster: LocalCluster) -> None:
    assert read_local_cluster(tmp_path) is None
    write_local_cluster(tmp_path, cluster)
    assert read_local_cluster(tmp_path) == cluster
    assert SAVED.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_racks_and_settings_hold_until_others_are_given(tmp_path: Path) -> None:
    first = planned(None, 2, 5, 7, ("west", "east"), {"a": "1", "b": "2"})
    write_local_cluster(tmp_path, first)
    saved = read_local_cluster(tmp_path)
    assert saved == first
    again = planned(saved, None, None, None)
    assert (again.racks, again.settings) == (("west", "east"), {"a": "1", "b": "2"})
    other = planned(saved, None, None, None, ("north", "south"), {"a": "3", "b": "", "c": "4"})
    assert (other.racks, other.settings) == (("north", "south"), {"a": "3", "c": "4"})


def test_cluster_of_a_version_that_kept_ports_alone_has_no_racks_and_settings(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 1, "zookeeper_port": 7, "ports": [5, 9]}')
    assert read_local_cluster(tmp_path) == LocalCluster(7, (5, 9), (), {})


@pytest.mark.parametrize(("saved_racks", "racks"), [(("a", "b"), ()), ((), ("a", "b"))])
def test_each_broker_has_a_rack_or_none_has(saved_racks: tuple[str, ...], racks: tuple[str, ...]) -> None:
    saved = LocalCluster(7, (5, 9), saved_racks)
    with pytest.raises(LocalClusterError, match="known: 2 racks for 3 brokers"):
        planned(saved, 3, None, None, racks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 1, "ports": [1]}',
        '{"version": 1, "zookeeper_port": 1, "ports": []}',
        '{"version": 1, "zookeeper_port": "1", "ports": [1]}',
        '{"version": 1, "zookeeper_port": 1, "ports": [0]}',
        '{"version": 1, "zookeeper_port": 1, "ports": [1], "racks": ["a", "b"]}',
        '{"version": 1, "zookeeper_port": 1, "ports": [1], "racks": [7]}',
        '{"version": 1, "zookeeper_port": 1, "ports": [1], "settings": {"a": 1}}',
        '{"version": 1, "zookeeper_port": 1, "ports": [1], "settings": "a=1"}',
    ],
)
def test_damaged_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError, match=r"cluster\.json cannot be read"):
        read_local_cluster(tmp_path)


def test_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 3}')
    with pytest.raises(LocalClusterError, match="has version 3"):
        read_local_cluster(tmp_path)


def test_directory_is_of_one_cluster_up_at_a_time(tmp_path: Path) -> None:
    data_dir = tmp_path / "cluster"
    message = rf"another `ottla cluster up` has .* by process {os.getpid()}\nhint: end that one first"
    with (
        claimed_local_cluster(data_dir),
        pytest.raises(LocalClusterError, match=message),
        claimed_local_cluster(data_dir),
    ):
        pass
    with claimed_local_cluster(data_dir):
        pass


def test_second_cluster_up_ends_before_its_zookeeper_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverStarted:
        def __init__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr("ottla.testing.cluster.RunningCluster", NeverStarted)
    with claimed_local_cluster(tmp_path):
        done = CliRunner().invoke(cluster_up.command, ["--data-dir", str(tmp_path), "--port", "0"])
    assert isinstance(done.exception, LocalClusterError), done.output
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_data_directory_of_a_broker_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(LocalClusterError, match=r"data directory of one broker"), claimed_local_cluster(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_cluster_that_verbs_do_not_find_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "ottla-cluster").mkdir()
    write_local_cluster(tmp_path / "ottla-cluster", LocalCluster(7, (5, 9)))
    assert cluster_up.how_found("127.0.0.1:5,127.0.0.1:9") == []
    (line,) = cluster_up.how_found("127.0.0.1:6")
    assert line == (
        "note: verbs without an address connect to 127.0.0.1:5,127.0.0.1:9 (that of the cluster in this directory); "
        "this cluster's is --bootstrap-server 127.0.0.1:6"
    )
    monkeypatch.setenv("OTTLA_PROFILE", "gone")
    (line,) = cluster_up.how_found("127.0.0.1:5,127.0.0.1:9")
    assert line.startswith("note: verbs need --bootstrap-server 127.0.0.1:5,127.0.0.1:9: there is no profile gone")
