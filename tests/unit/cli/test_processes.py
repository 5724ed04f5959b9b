from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.cli.processes import ServeFlags, report, serve_processes
from ottla.maintenance.resize_steps import KeptDirectory, ResizeResult
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.listener import parse_listeners
from ottla.model.serve_options import serve_options
from ottla.model.settings import BrokerSettings
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.checkpoints import write_meta_properties
from ottla.storage.directory import directory_identity
from ottla.storage.directory.directory_identity import FORMAT, FORMAT_NAME
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.process_places import (
    FIRST_DIRECTORY,
    BrokerPlace,
    ProcessPlaces,
    folder_of,
    place_of,
    read_places,
    write_places,
)
from ottla.storage.errors import ForeignDirectory

KEPT = (KeptDirectory("/data/processes/broker-2", ("a.txt",)), KeptDirectory("/data/processes/broker-3", ()))
FLAGS = ServeFlags(None, (), insecure_listen=False, log_level="info")


def serve(directory: Path, processes: str | None, **texts: str) -> int | None:
    settings = BrokerSettings.of({name.replace("_", "."): text for name, text in texts.items()})
    return serve_processes(serve_options(settings, data_dir=str(directory)), processes, FLAGS)


@pytest.mark.parametrize("processes", [None, "1"])
def test_one_process_needs_no_supervisor_and_no_folder(tmp_path: Path, processes: str | None) -> None:
    assert serve(tmp_path, processes) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", ["0", "-1", "none", "65", "1e1", ""])
def test_what_is_no_count_is_refused(tmp_path: Path, processes: str) -> None:
    with pytest.raises(ConfigError, match="is no count of processes"):
        serve(tmp_path, processes)


@pytest.mark.parametrize("name", ["zookeeper_connect", "tree_socket"])
def test_broker_of_another_tree_cannot_have_further_processes(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="names a tree that others share"):
        serve(tmp_path, "2", **{name: "/somewhere"})
    assert serve(tmp_path, "1", **{name: "/somewhere"}) is None


def test_more_replicas_than_processes_are_refused_before_a_broker_is_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"default\.replication\.factor=3, and there are 2 processes"):
        serve(tmp_path, "2", default_replication_factor="3")


@pytest.mark.parametrize(
    ("home", "problem"),
    [("zookeeper", "its topics are in the cluster's ZooKeeper"), ("processes", r"processes\.json is not there")],
)
def test_directory_whose_tree_is_elsewhere_is_refused(tmp_path: Path, home: str, problem: str) -> None:
    found = {"version": "1", "node.id": "0", FORMAT_NAME: FORMAT, "ottla.tree": home}
    write_meta_properties(PosixDisk(), str(tmp_path), found)
    with pytest.raises(ForeignDirectory, match=problem):
        serve(tmp_path, "2")
    assert [each.name for each in tmp_path.iterdir()] == ["meta.properties"]


def test_directory_of_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    with pytest.raises(OttlaError, match="is not a data directory"):
        serve(tmp_path, "2")
    assert [each.name for each in tmp_path.iterdir()] == ["letters"]


def keep_two(tmp_path: Path) -> None:
    """The directory is that of two processes."""
    disk, lock = PosixDisk(), FileLock()
    directory_identity.claim(disk, str(tmp_path), 0, lock)
    lock.release()
    folder = folder_of(str(tmp_path))
    disk.make_directory(folder)
    brokers = (BrokerPlace(NodeId(0), FIRST_DIRECTORY, (19093,)), place_of(NodeId(1), (19094,)))
    listeners = parse_listeners("PLAINTEXT://127.0.0.1:19092", setting="listeners")
    write_places(disk, str(tmp_path), ProcessPlaces(listeners, brokers))


def test_one_process_after_several_is_a_standalone_broker(tmp_path: Path) -> None:
    keep_two(tmp_path)
    assert serve(tmp_path, "1") is None
    assert read_places(PosixDisk(), str(tmp_path)) is None


def test_auto_means_no_fewer_processes_than_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_two(tmp_path)
    monkeypatch.setattr("ottla.cli.processes.usable_cores_count", lambda: 1)
    # Three replicas are refused with the count of processes that it would start.
    with pytest.raises(ConfigError, match="there are 2 processes"):
        serve(tmp_path, "auto", default_replication_factor="3")
    monkeypatch.setattr("ottla.cli.processes.usable_cores_count", lambda: 4)
    with pytest.raises(ConfigError, match="there are 4 processes"):
        serve(tmp_path, "auto", default_replication_factor="5")


def test_system_without_descriptors_of_processes_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(ConfigError, match=r"pidfd_open.*Function not implemented"):
        serve(tmp_path, "2")
    assert list(tmp_path.iterdir()) == []


def test_lowered_factors_and_kept_directories_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(TopicPartition("orders", index) for index in range(7))
    report(ResizeResult(moved_count=3, lowered=names, kept=KEPT))
    said = capsys.readouterr().err
    assert "orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more had replicas" in said
    assert "/data/processes/broker-2 has no partitions any more, and these are left in it: a.txt: remove it" in said
    assert "/data/processes/broker-3 has no partitions any more, and is a mount point or a link: remove it" in said
    report(ResizeResult(moved_count=3))
    assert capsys.readouterr().err == ""
