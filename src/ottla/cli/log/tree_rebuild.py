"""The tree that `ottla log repair` rebuilds for a directory that has lost it: shown, and written with --execute."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from ottla.broker.shards.internal_topics import internal_topic_config
from ottla.cli.log.copied_tree import read_copied_tree
from ottla.cli.log.stopped_directory import StoppedDirectory, write_new_tree
from ottla.cli.log.topic_config_file import COMPACTED, KEPT_FOR_EVER, check_topics, read_topic_configs, settings_of
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.embedded.tree_copy import SIDE_SUFFIXES
from ottla.coordination.imported_topics import ImportedTopic, fill
from ottla.coordination.tree import Tree
from ottla.maintenance.found_topics import FoundTopic, find_topics
from ottla.maintenance.repair import BACKUP_SUFFIX
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.identifiers import INTERNAL_TOPICS, uuid_from_text, uuid_to_text
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_tree import TREE_FILE

_UNFINISHED_SUFFIX: Final = ".rebuilding"


class _Given(NamedTuple):
    """Settings from the command line: of topics, and of brokers and groups.  `is_whole`: what is not named had none."""

    of_topics: Mapping[str, Mapping[str, str]]
    of_others: Mapping[ConfigEntity, Mapping[str, str]]
    is_whole: bool
    source: str


class TreeRebuild(NamedTuple):
    """What would be written: `topics` as they are registered, `found` as the logs imply them, in the same order."""

    problem: str
    topics: Sequence[ImportedTopic]
    found: Sequence[FoundTopic]
    nameless_count: int
    given: _Given

    def topic_ids(self) -> dict[str, UUID]:
        return {topic.name: topic.topic_id for topic in self.topics}


def plan_rebuild(directory: StoppedDirectory, settings_path: Path | None) -> TreeRebuild:
    """Raises `OttlaError` for settings that cannot be read, or are of topics that are not there."""
    assert directory.tree_problem is not None
    given = _NOTHING_GIVEN if settings_path is None else _read_given(settings_path)
    found = find_topics(directory.disk, directory.path)
    if settings_path is not None and not given.is_whole:
        check_topics(given.of_topics, (topic.name for topic in found.topics), settings_path.name)
    topics = [
        ImportedTopic(topic.name, topic.topic_id or uuid4(), topic.leader_epochs, _settings(topic, given))
        for topic in found.topics
    ]
    return TreeRebuild(str(directory.tree_problem), topics, found.topics, found.nameless_count, given)


def _settings(topic: FoundTopic, given: _Given) -> dict[str, str]:
    own = settings_of(given.of_topics, topic.name)
    if topic.name in given.of_topics and given.is_whole:
        return own
    if topic.name in INTERNAL_TOPICS:
        # The broker's own, and as it makes it: coordinators lose nothing by its compaction.
        return {**internal_topic_config(topic.name, BrokerSettings()), **own}
    guessed = COMPACTED if topic.was_compacted and "cleanup.policy" not in own else {}
    return {**guessed, **KEPT_FOR_EVER, **own}


def _read_given(path: Path) -> _Given:
    """A file as for `log import --config`, or a directory with a tree: a former backup, or a copy of the directory."""
    if not path.is_dir():
        return _Given(read_topic_configs(path), {}, is_whole=False, source=str(path))
    if not (path / TREE_FILE).exists():
        raise OttlaError(
            f"{path} has no {TREE_FILE}", hint="name a file of settings, or a directory that `ottla backup` made"
        )
    tree = read_copied_tree(str(path / TREE_FILE))
    of_topics = {name: tree.configs.topic(name) for name in tree.topics.by_name}
    return _Given(of_topics, _of_others(tree.configs), is_whole=True, source=str(path))


def _of_others(configs: ConfigsView) -> dict[ConfigEntity, Mapping[str, str]]:
    return {entity: texts for entity, texts in configs.settings.items() if entity.kind != "topics"}


_NOTHING_GIVEN: Final = _Given({}, {}, is_whole=False, source="")


def execute_rebuild(directory: StoppedDirectory, plan: TreeRebuild) -> str | None:
    """Write the tree, durably; returns where the former files are, None when there were none.  Raises `OSError`,
    `OttlaError`; after that, and after a crash, the tree is still lost, and repair begins again.
    """
    disk, path = directory.disk, directory.tree_path
    unfinished = path + _UNFINISHED_SUFFIX
    _remove([unfinished, *(unfinished + suffix for suffix in SIDE_SUFFIXES)])
    text = directory_tree.cluster_id_of(disk, directory.path)
    own_cluster_id = None if text is None else uuid_from_text(text)

    async def fill_it(tree: Tree) -> None:
        await fill(tree, directory.node_id, own_cluster_id, plan.topics, plan.given.of_others)

    write_new_tree(unfinished, fill_it)
    file = disk.open(unfinished)
    try:
        file.sync_data()
    finally:
        file.close()
    aside = _set_aside(directory)
    disk.rename(unfinished, path)
    disk.sync_directory(directory.path)
    return aside


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.exists(path):
            os.remove(path)


def _set_aside(directory: StoppedDirectory) -> str | None:
    """The file first: without it what remains of the others is no tree.  A write-ahead log that stayed would be taken
    for the new tree's.
    """
    disk, path = directory.disk, directory.tree_path
    moment = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    stem, number = f"{path}.{moment:%Y%m%dT%H%M%SZ}", 1
    target = stem
    while any(disk.exists(f"{target}{suffix}{BACKUP_SUFFIX}") for suffix in ("", *SIDE_SUFFIXES)):
        number += 1
        target = f"{stem}.{number}"
    moved = [suffix for suffix in ("", *SIDE_SUFFIXES) if disk.exists(path + suffix)]
    for suffix in moved:
        disk.rename(path + suffix, f"{target}{suffix}{BACKUP_SUFFIX}")
    disk.sync_directory(directory.path)
    return f"{target}{BACKUP_SUFFIX}" if moved else None


def rebuild_text(plan: TreeRebuild, aside: str | None, *, is_done: bool) -> list[str]:
    lines = [plan.problem]
    verb = "is" if is_done else "would be"
    lines.append(f"  the tree {verb} rebuilt from the logs, with {counted(len(plan.topics), 'topic')}:")
    for topic, found in zip(plan.topics, plan.found, strict=True):
        lines.append(
            f"  {topic.name}: id={uuid_to_text(topic.topic_id)} partitions={found.partitions_count}"
            f"{''.join(f' {name}={text}' for name, text in topic.config.items())}"
        )
        lines += [f"    {line}" for line in _doubts(found)]
    lines += _remarks(plan)
    if aside is not None:
        lines.append(f"  the former file is kept: {aside}")
    return lines


def _doubts(found: FoundTopic) -> list[str]:
    lines: list[str] = []
    if found.topic_id is None:
        lines.append("no partition says the topic's id: it gets a new one")
    if found.gone:
        lines.append(f"the directories of partitions {_listed(found.gone)} are gone: they will be refused")
    if found.unknown:
        lines.append(f"nothing is there of partitions {_listed(found.unknown)}: they will be empty")
    if found.others:
        lines.append(f"left as it is, of another topic: {', '.join(map(str, found.others))}")
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _remarks(plan: TreeRebuild) -> list[str]:
    lines: list[str] = []
    if plan.nameless_count:
        lines.append(
            f"  {counted(plan.nameless_count, 'topic')} more had records, and no directory is left of them: they are "
            "not made"
        )
    if any(topic.name not in plan.given.of_topics and topic.name not in INTERNAL_TOPICS for topic in plan.topics):
        lines.append(
            "  the settings of topics were in the tree alone: where none are given (--settings), retention is off, so "
            "that nothing is deleted on a guess; a partition after the last one that is there is not known either"
        )
    if not plan.given.is_whole:
        lines.append(
            "  settings of groups, and those that a running broker was given, are lost; groups keep their offsets"
        )
    else:
        others = counted(len(plan.given.of_others), "broker or group", "brokers and groups")
        lines.append(f"  settings are those of {plan.given.source}, also of {others}")
    return lines


def rebuild_object(plan: TreeRebuild, aside: str | None) -> dict[str, object]:
    topics = [
        {
            "topic": topic.name,
            "id": uuid_to_text(topic.topic_id),
            "is_id_new": found.topic_id is None,
            "partitions": found.partitions_count,
            "gone": list(found.gone),
            "unknown": list(found.unknown),
            "left": [str(each) for each in found.others],
            "settings": dict(topic.config),
        }
        for topic, found in zip(plan.topics, plan.found, strict=True)
    ]
    shown = {"tree": TREE_FILE, "problem": plan.problem, "topics": topics, "nameless_topics": plan.nameless_count}
    return {**shown, "backup": aside}
