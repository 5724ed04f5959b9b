"""The tree of a stopped broker's directory, held against its logs: what a start would refuse, or leave lying."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.cli.log.copied_tree import copied_topic_ids, lost_tree_of, read_copied_tree
from ottla.coordination.embedded.errors import TreeStoreError
from ottla.coordination.topics_view import TopicsView
from ottla.maintenance.inspect import foreign_segments
from ottla.model.counted import counted
from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_tree import TREE_FILE
from ottla.storage.directory.partition_directory import find_missing_logs, is_no_log
from ottla.storage.log_files import topic_partition_of

AREA: Final = "tree"
_SHOWN: Final = 10


def tree_findings(disk: Disk, data_dir: str, names: Sequence[str]) -> Iterator[Finding]:
    """`names` are the directories that are named like partitions.  Raises `OSError`."""
    if directory_tree.is_shared(disk, data_dir):
        return
    if not os.path.exists(f"{data_dir}/{TREE_FILE}") and directory_tree.may_have_new_tree(disk, data_dir):
        return
    lost = lost_tree_of(disk, data_dir)
    if lost is not None:
        yield problem(AREA, str(lost), lost.hint or "")
        return
    try:
        tree = read_copied_tree(f"{data_dir}/{TREE_FILE}")
    except TreeStoreError as error:
        yield problem(AREA, str(error), error.hint or "")
        return
    cluster_id = directory_tree.cluster_id_of(disk, data_dir)
    if cluster_id is not None and tree.cluster_id != cluster_id:
        yield problem(
            AREA,
            f"{TREE_FILE} is of cluster {tree.cluster_id}, the directory of cluster {cluster_id}",
            "it was not made with these logs: restore the one that was",
        )
        return
    yield ok(AREA, f"{TREE_FILE} has {counted(len(tree.topics.by_name), 'topic')}, and is whole")
    gone = find_missing_logs(disk, data_dir, lambda: copied_topic_ids(f"{data_dir}/{TREE_FILE}"))
    if gone:
        text = f"directories are gone of partitions that held records: {_listed([str(each[0]) for each in gone])}"
        yield problem(AREA, text, "restore them from a backup, or delete the topics: the broker refuses the partitions")
    yield from _foreign(disk, data_dir, names, tree.topics)


def _foreign(disk: Disk, data_dir: str, names: Sequence[str], topics: TopicsView) -> Iterator[Finding]:
    others: list[str] = []
    without: list[str] = []
    strange: list[str] = []
    segments: list[str] = []
    for name in names:
        partition = topic_partition_of(name)
        path = f"{data_dir}/{name}"
        if is_no_log(disk, path):
            strange.append(name)
            continue
        assert partition is not None
        if _is_of_another_topic(disk, path, partition, topics):
            others.append(name)
        elif topics.partition(partition) is None:
            without.append(name)
        segments += [f"{name}/{each}" for each in foreign_segments(disk, path)]
    if others:
        text = f"they belong to other topics of these names, and are neither served nor changed: {_listed(others)}"
        yield problem(AREA, text, "move them out of the data directory")
    if segments:
        text = f"segments that are not of the logs in whose directories they are: {_listed(segments)}"
        yield problem(AREA, text, "move them away; `ottla log verify DIR` shows what is missing then")
    if without:
        yield warning(AREA, f"logs without a topic: {_listed(without)}", "move them away when they are not needed")
    if strange:
        text = f"named like partitions, and no logs: {_listed(strange)}"
        yield warning(AREA, text, "move them out of the data directory")


def _is_of_another_topic(disk: Disk, path: str, partition: TopicPartition, topics: TopicsView) -> bool:
    try:
        topic_id = checkpoints.read_topic_id(disk, path)
    except checkpoints.DamagedCheckpoint:
        return False  # another check reports it
    topic = topics.by_name.get(partition.topic)
    return topic is not None and topic_id is not None and topic_id != topic.topic_id


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
