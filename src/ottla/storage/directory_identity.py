"""Whose directory it is: `meta.properties`, readable by Apache Kafka's tools, with a mark that it is ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.errors import ForeignDirectory
from ottla.storage.log_files import topic_partition_of

# Apache Kafka's own reader ignores names that it does not know.
FORMAT_NAME: Final = "ottla.format"
FORMAT: Final = "1"
META_VERSION: Final = "1"


def check_or_write(disk: Disk, path: str, node_id: int, cluster_id: str | None) -> None:
    """Make sure that the directory is this node's, claiming it if it is new.

    Raises `ForeignDirectory` for one that Apache Kafka, another node or another cluster made.
    """
    found = checkpoints.read_meta_properties(disk, path)
    if found is None:
        _refuse_unclaimed_logs(disk, path)
        checkpoints.write_meta_properties(disk, path, _properties(node_id, cluster_id))
        return
    if FORMAT_NAME not in found:
        raise ForeignDirectory(
            f"{path} was made by Apache Kafka",
            hint="a directory that two kinds of brokers write is lost: take its topics over with "
            f"`ottla log import {path} --data-dir NEW`, then serve NEW",
        )
    if found[FORMAT_NAME] != FORMAT:
        raise ForeignDirectory(
            f"{path} has format {found[FORMAT_NAME]}, this broker reads format {FORMAT}",
            hint="start the version of the broker that wrote it",
        )
    _refuse_other(path, "node.id", found.get("node.id"), str(node_id))
    if cluster_id is not None and "cluster.id" in found:
        _refuse_other(path, "cluster.id", found["cluster.id"], cluster_id)
    wanted = _properties(node_id, cluster_id if cluster_id is not None else found.get("cluster.id"))
    if any(found.get(name) != value for name, value in wanted.items()):
        checkpoints.write_meta_properties(disk, path, {**found, **wanted})


def _properties(node_id: int, cluster_id: str | None) -> Mapping[str, str]:
    properties = {"version": META_VERSION, "node.id": str(node_id), FORMAT_NAME: FORMAT}
    if cluster_id is not None:
        properties["cluster.id"] = cluster_id
    return properties


def _refuse_other(path: str, name: str, found: str | None, wanted: str) -> None:
    if found != wanted:
        raise ForeignDirectory(
            f"{path} belongs to {name} {found}, this broker has {wanted}",
            hint=f"start it with {name}={found}, or give it its own empty --data-dir",
        )


def _refuse_unclaimed_logs(disk: Disk, path: str) -> None:
    for name in disk.list_directory(path):
        if topic_partition_of(name) is not None and disk.is_directory(f"{path}/{name}"):
            raise ForeignDirectory(f"{path} holds logs ({name}) but no meta.properties says whose they are")
