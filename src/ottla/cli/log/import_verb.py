"""`ottla log import`: imports topics of an Apache Kafka data directory, without writing to it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.log.topic_config_file import COMPACTED, KEPT_FOR_EVER
from ottla.cli.output import say
from ottla.model.counted import counted
from ottla.model.errors import OttlaError, RequestError

if TYPE_CHECKING:
    from ottla.cli.log.stopped_directory import StoppedDirectory
    from ottla.coordination.imported_topics import ImportedTopic
    from ottla.coordination.tree import Tree
    from ottla.maintenance.kafka_directory import KafkaDirectory
    from ottla.maintenance.log_import import LogImport, SourceLog
    from ottla.model.identifiers import TopicPartition


@click.command(name="import")
@click.argument("source_dir", metavar="SOURCE_DIR", type=click.Path())
@click.option(
    "--data-dir", required=True, metavar="DIR", help="The data directory to import into; created if it is new."
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated.")
@click.option("--exclude", "excluded", multiple=True, metavar="TOPIC", help="All topics but this one; may be repeated.")
@click.option("--link", "links", is_flag=True, help="Hard-link closed segments: fast, without extra space.")
@click.option("--copy", "copies", is_flag=True, help="Copy every file: the default.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Settings of the topics: JSON {"TOPIC": {"KEY": "VALUE"}} or lines TOPIC/KEY=VALUE; * is every topic.',
)
@click.option(
    "--node-id",
    type=click.IntRange(min=0),
    metavar="ID",
    default=0,
    show_default=True,
    help="For a new data directory.",
)
@click.option("--dry-run", is_flag=True, help="Read and check the source, and show what would be imported.")
def command(
    source_dir: str,
    data_dir: str,
    topics: tuple[str, ...],
    excluded: tuple[str, ...],
    links: bool,
    copies: bool,
    config_path: Path | None,
    node_id: int,
    dry_run: bool,
) -> None:
    """Import topics from a data directory of Apache Kafka (KRaft), with their records, offsets and ids.

    \b
    ottla log import /var/lib/kafka --data-dir /var/lib/ottla --topic clicks

    SOURCE_DIR is one of log.dirs of a stopped broker; nothing is written to it.  Every batch is checked.  The topics'
    settings are not in it: retention is off for them unless --config says otherwise.  Offsets of consumer groups are
    not imported.
    """
    if links and copies:
        raise click.UsageError("--link and --copy exclude each other.")

    from ottla.cli.log.topic_config_file import check_topics, read_topic_configs
    from ottla.maintenance.kafka_directory import KafkaDirectory

    configs = {} if config_path is None else read_topic_configs(config_path)
    with KafkaDirectory(source_dir) as source:
        source_path, target_path = os.path.realpath(source_dir), os.path.realpath(data_dir)
        if source_path == target_path:
            raise OttlaError("source and data directory are the same", hint="give a new --data-dir")
        if os.path.commonpath([source_path, target_path]) == source_path:
            problem = f"{data_dir} is inside the source, and nothing is written there"
            raise OttlaError(problem, hint="give a --data-dir outside of it")
        if os.path.lexists(data_dir) and not os.path.isdir(data_dir):
            raise OttlaError(f"{data_dir} is not a directory", hint="give a new --data-dir")
        by_topic = _chosen(source, topics, excluded)
        if config_path is not None:
            check_topics(configs, by_topic, config_path.name)
        _note(_state_of(source))
        logs = _read_all(source, by_topic)
        imported = [_imported(source, name, logs[name], configs) for name in by_topic]
        act = _check_only if dry_run else _import
        act(imported, [log for name in by_topic for log in logs[name]], data_dir, node_id, links)
    _report(imported, logs, source.path, data_dir, dry_run=dry_run)


def _chosen(source: KafkaDirectory, topics: Sequence[str], excluded: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Topics with their partitions; each must be whole in this directory."""
    from ottla.model.nearest import nearest_name

    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in source.partitions():
        by_topic.setdefault(partition.topic, []).append(partition)
    for name in [*topics, *excluded]:
        if name not in by_topic:
            nearest = nearest_name(name, by_topic)
            hint = f"did you mean {nearest}?" if nearest else f"it has {', '.join(by_topic) or 'no topics'}"
            raise OttlaError(f"{source.path} has no topic {name}", hint=hint)
    chosen = {
        name: found for name, found in by_topic.items() if name not in excluded and (not topics or name in topics)
    }
    if not chosen:
        raise OttlaError(f"nothing to import from {source.path}", hint="its only topics are Kafka's own or excluded")
    for name, found in chosen.items():
        missing = [index for index in range(found[-1].partition + 1) if index not in {each.partition for each in found}]
        if missing:
            raise OttlaError(
                f"partition {missing[0]} of topic {name} is not in {source.path}",
                hint="its broker had only some partitions: import from a replica that has all, or --exclude the topic",
            )
    return chosen


def _state_of(source: KafkaDirectory) -> str:
    if source.was_clean:
        return f"{source.path}: cluster {source.cluster_id}, node {source.node_id}, stopped cleanly"
    return (
        f"{source.path}: cluster {source.cluster_id}, node {source.node_id}, not stopped cleanly: "
        "an incomplete batch at a log's end is left out"
    )


def _read_all(source: KafkaDirectory, by_topic: Mapping[str, Sequence[TopicPartition]]) -> dict[str, list[SourceLog]]:
    """Read everything before anything is written: a log that cannot be imported stops the import."""
    from ottla.maintenance.log_import import read_source_log

    logs: dict[str, list[SourceLog]] = {}
    for name, partitions in by_topic.items():
        logs[name] = [read_source_log(source, partition) for partition in partitions]
        ids = {log.topic_id for log in logs[name]}
        if len(ids) > 1:
            raise OttlaError(
                f"the partitions of topic {name} have different topic ids",
                hint="a deleted topic's directory is among them; move it away",
            )
        for log in logs[name]:
            if log.torn_tail_bytes:
                _note(
                    f"{log.partition}: {counted(log.torn_tail_bytes, 'byte')} after offset {log.log_end_offset} "
                    "are a write that the crash interrupted"
                )
    return logs


def _imported(
    source: KafkaDirectory, name: str, logs: Sequence[SourceLog], configs: Mapping[str, Mapping[str, str]]
) -> ImportedTopic:
    from ottla.cli.log.topic_config_file import settings_of
    from ottla.coordination.imported_topics import ImportedTopic
    from ottla.maintenance.log_import import latest_epoch

    given = settings_of(configs, name)
    settings = {**KEPT_FOR_EVER, **given}
    if any(log.has_gaps for log in logs) and "cleanup.policy" not in given:
        settings = {**COMPACTED, **settings}
    epochs = [latest_epoch(source.disk, log) + 1 for log in logs]
    return ImportedTopic(name, logs[0].topic_id, epochs, settings)


def _import(
    topics: Sequence[ImportedTopic], logs: Sequence[SourceLog], data_dir: str, node_id: int, links: bool
) -> None:
    from ottla.cli.log.stopped_directory import StoppedDirectory, make_data_directory
    from ottla.coordination.imported_topics import register
    from ottla.maintenance.log_import import LogImport

    make_data_directory(data_dir, node_id)
    with StoppedDirectory(data_dir) as target:

        async def register_all(tree: Tree) -> None:
            for topic in topics:
                await register(tree, target.node_id, topic)

        running = LogImport(target.disk, target.path, links=links)
        _check(target, running, topics, logs)
        for log in logs:
            running.copy(log)
        running.publish(logs)
        target.with_tree(register_all)


def _check_only(
    topics: Sequence[ImportedTopic], logs: Sequence[SourceLog], data_dir: str, node_id: int, links: bool
) -> None:
    """Refuse what `_import` would refuse; a new or empty directory stays unchanged."""
    from ottla.cli.log.stopped_directory import StoppedDirectory
    from ottla.maintenance.log_import import LogImport
    from ottla.runtime.posix_disk import PosixDisk
    from ottla.storage.directory.directory_identity import Owner, check, owner_of

    there, disk = os.path.abspath(data_dir), PosixDisk()
    if os.path.isdir(there) and owner_of(disk, there) is Owner.OTTLA:
        with StoppedDirectory(there) as target:
            _check(target, LogImport(target.disk, target.path, links=links), topics, logs)
        return
    if os.path.lexists(there):
        check(disk, there, node_id, None)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    LogImport(disk, there, links=links).check_room(logs)


def _check(
    target: StoppedDirectory, running: LogImport, topics: Sequence[ImportedTopic], logs: Sequence[SourceLog]
) -> None:
    from ottla.coordination.imported_topics import check_importable

    async def check_names(tree: Tree) -> None:
        for topic in topics:
            try:
                await check_importable(tree, target.node_id, [topic])
            except RequestError as error:
                hint = f"leave it out: --exclude {topic.name}, or import into a new --data-dir"
                raise OttlaError(f"{target.path}: {error}", hint=hint) from error

    target.with_tree(check_names)
    running.check_former(logs)
    running.check_room(logs)


def _note(text: str) -> None:
    say(f"note: {text}", err=True)


def _report(
    topics: Sequence[ImportedTopic],
    logs: Mapping[str, Sequence[SourceLog]],
    source: str,
    data_dir: str,
    *,
    dry_run: bool,
) -> None:
    for topic in topics:
        found = logs[topic.name]
        batches = sum(log.batches_count for log in found)
        records = sum(log.records_count for log in found)
        say(
            f"{topic.name}: partitions={len(found)} records={records} batches={batches} "
            f"bytes={sum(log.size_bytes for log in found)}"
        )
        if any(log.transactional_batches_count for log in found):
            _note(f"{topic.name} has transactions: all of them have ended")
        if topic.config.get("min.compaction.lag.ms") == COMPACTED["min.compaction.lag.ms"]:
            _note(
                f"{topic.name} was compacted: it has cleanup.policy=compact, and min.compaction.lag.ms keeps "
                "everything until you lower it"
            )
    count = sum(len(found) for found in logs.values())
    done = "would import" if dry_run else "imported"
    say(
        f"{done} {counted(len(topics), 'topic')} with {counted(count, 'partition')} from {source} into {data_dir}",
        err=True,
    )
    kept = [topic.name for topic in topics if KEPT_FOR_EVER.items() <= topic.config.items()]
    if kept:
        _note(
            f"retention is off for {', '.join(kept)}: nothing is deleted by age or size until you set it, with "
            "`ottla topic alter TOPIC --config retention.ms=604800000 --delete-config retention.bytes`"
        )
    if not dry_run:
        serve = f"ottla serve --data-dir {shlex.quote(data_dir)}"
        _note(f"start it with: {serve}; groups start without offsets, which were not imported")
