"""`ottla topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli.client_flags import all_names, assignments, bootstrap_flag, open_cluster, output_flag
from ottla.cli.output import data_lines, raise_together, say
from ottla.cli.topic import records
from ottla.cli.topic.description import description, lines_of_kafka, topic_object
from ottla.cli.verb_group import VerbGroup
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.wire.errors import BrokerRefused

_NAMES = click.argument("names", nargs=-1, metavar="TOPIC...")
_ALL_OR_NAMES = click.argument("names", nargs=-1, metavar="[TOPIC...]")
_TOPIC_FLAG = click.option("--topic", "more_names", multiple=True, metavar="TOPIC", help="The same as TOPIC.")
_CONFIG_FLAG = click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting of the topic; may be repeated."
)
MIN_IN_SYNC = "min.insync.replicas"
# With two in sync one of them can fail, and the topic takes records all the same.
REPLICAS_OF_A_SAFE_TOPIC = 3
_OUTPUT_FLAG = output_flag("One object for each topic.")


@click.group(name="topic", cls=VerbGroup)
def command() -> None:
    """Create, list, describe, alter and delete topics; show their offsets, delete records."""


command.add_command(records.offsets)
command.add_command(records.delete_records)


@command.command()
@_NAMES
@_TOPIC_FLAG
@bootstrap_flag
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partition count.  [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    metavar="N",
    help="Replicas of each partition.  [default: the broker's]",
)
@_CONFIG_FLAG
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is no error.")
def create(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    bootstrap: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics.

    \b
    ottla topic create clicks --partitions 6 --config retention.ms=86400000

    With three replicas or more min.insync.replicas is 2 unless --config says otherwise: what is acknowledged with
    acks=all is then on two brokers at least.
    """
    wanted = _wanted(names, more_names)
    settings = assignments(configs, "--config")
    if replication_factor is not None and replication_factor >= REPLICAS_OF_A_SAFE_TOPIC:
        settings = {MIN_IN_SYNC: "2", **settings}

    from ottla.client.admin.admin import BROKER_DEFAULT, Admin, CreatedTopic, NewTopic

    topics = [
        NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, settings) for name in wanted
    ]
    with open_cluster(bootstrap, "ottla-topic") as cluster:
        outcomes = Admin(cluster).create_topics(topics)
    refused = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, CreatedTopic):
            say(f"created topic {name}{_shape(outcome.partitions_count, outcome.replication_factor)}")
            _warn_of_replicas(name, settings, outcome.replication_factor)
        elif if_not_exists and outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            say(f"topic {name} exists already")
        else:
            refused.append(outcome)
    raise_together(refused)


@command.command(name="list")
@bootstrap_flag
@click.option("--exclude-internal", is_flag=True, help="Leave internal topics out.")
@_OUTPUT_FLAG
def list_topics(bootstrap: str, exclude_internal: bool, as_data: bool) -> None:
    """Show the names of all topics."""
    from ottla.client.admin.admin import Admin

    with open_cluster(bootstrap, "ottla-topic") as cluster:
        topics = Admin(cluster).list_topics()
    for topic in topics:
        if not (exclude_internal and topic.is_internal):
            say(*(data_lines(topic_object(topic, {})) if as_data else [topic.name]))


@command.command()
@_ALL_OR_NAMES
@_TOPIC_FLAG
@bootstrap_flag
@click.option("--kafka", "as_kafka", is_flag=True, help="Write the lines of Kafka's own tool, for scripts.")
@_OUTPUT_FLAG
def describe(
    names: tuple[str, ...], more_names: tuple[str, ...], bootstrap: str, as_kafka: bool, as_data: bool
) -> None:
    """Show partitions, leaders, replicas and settings of topics; of all when none is named.

    \b
    ottla topic describe clicks
    """
    if as_kafka and as_data:
        raise click.UsageError("--kafka and --output exclude each other.")
    from ottla.client.admin.admin import Admin
    from ottla.client.wire.errors import BrokerRefused, UnknownTopic

    wanted = all_names(names, more_names)
    missing: list[BrokerRefused] = []
    shown_count = 0
    with open_cluster(bootstrap, "ottla-topic") as cluster:
        admin = Admin(cluster)
        for topic in admin.describe_topics(wanted) if wanted else admin.list_topics():
            if topic.error_code:
                detail = f"topic {topic.name} does not exist" if topic.error_code in _UNKNOWN else None
                missing.append(BrokerRefused(topic.error_code, f"topic {topic.name}", detail))
                continue
            settings = _settings_of(admin, topic.name)
            if as_data:
                say(*data_lines(topic_object(topic, settings)))
            elif as_kafka:
                say(*lines_of_kafka(topic, settings))
            else:
                say(*([""] if shown_count else []), *description(topic, settings))
            shown_count += 1
    if missing and all(refusal.code in _UNKNOWN for refusal in missing):
        raise UnknownTopic(", ".join(f"{refusal.subject} does not exist" for refusal in missing))
    raise_together(missing)


@command.command()
@_NAMES
@_TOPIC_FLAG
@bootstrap_flag
@_CONFIG_FLAG
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY", help="Restore the broker's default of this setting."
)
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="The new partition count; never fewer.")
def alter(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    bootstrap: str,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    partitions: int | None,
) -> None:
    """Change settings of topics, or add partitions; other settings stay unchanged.

    \b
    ottla topic alter clicks --config retention.ms=3600000
    ottla topic alter clicks --partitions 12

    With more partitions a key may map to another one than before: ordering by key holds only from then on.
    """
    wanted = _wanted(names, more_names)
    settings = assignments(configs, "--config")
    if not settings and not deleted and partitions is None:
        raise click.UsageError("Give a change: --config KEY=VALUE, --delete-config KEY or --partitions N.")

    from ottla.client.admin.admin import Admin
    from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType

    changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in settings.items()]
    changes += [ConfigChange(name, ConfigOperation.DELETE) for name in deleted]
    with open_cluster(bootstrap, "ottla-topic") as cluster:
        admin = Admin(cluster)
        for name in wanted if deleted else ():
            _check_known(admin, name, deleted)
        for name in wanted if changes else ():
            admin.alter_configs(ConfigResource(ResourceType.TOPIC, name), changes)
            say(f"altered topic {name}")
        if MIN_IN_SYNC in settings:
            for topic in admin.describe_topics(wanted):
                for info in list(topic.partitions.values())[:1]:
                    _warn_of_replicas(topic.name, settings, len(info.replicas))
        if partitions is not None:
            _add_partitions(admin, wanted, partitions)


def _check_known(admin: Admin, topic: str, names: Sequence[str]) -> None:
    """Brokers accept the deletion of a setting that does not exist."""
    from ottla.client.admin.configs import ConfigResource, ResourceType
    from ottla.model.nearest import nearest_name

    known = admin.describe_configs(ConfigResource(ResourceType.TOPIC, topic))
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"did you mean {nearest}?" if nearest else "`ottla topic describe` shows which are set"
            raise OttlaError(f"topic {topic}: topics have no setting {name!r}", hint=hint)


def _warn_of_replicas(topic: str, settings: Mapping[str, str], replicas_count: int) -> None:
    """A factor of -1: the broker is too old to return it."""
    text = settings.get(MIN_IN_SYNC, "")
    if text.isascii() and text.isdecimal() and 0 < replicas_count < int(text[:9]):
        say(
            f"warning: topic {topic} has {counted(replicas_count, 'replica')} and {MIN_IN_SYNC}={text}: "
            "Ottla then refuses produces with acks=all (Apache Kafka 4.1 accepts them)",
            err=True,
        )


def _add_partitions(admin: Admin, names: Sequence[str], count: int) -> None:
    outcomes = admin.create_partitions(dict.fromkeys(names, count))
    for name, refusal in outcomes.items():
        if refusal is None:
            say(f"topic {name} has {counted(count, 'partition')} now")
    raise_together([refusal for refusal in outcomes.values() if refusal is not None])


@command.command()
@_NAMES
@_TOPIC_FLAG
@bootstrap_flag
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
def delete(names: tuple[str, ...], more_names: tuple[str, ...], bootstrap: str, if_exists: bool) -> None:
    """Delete topics and all their records.

    \b
    ottla topic delete clicks
    """
    wanted = _wanted(names, more_names)

    from ottla.client.admin.admin import Admin

    with open_cluster(bootstrap, "ottla-topic") as cluster:
        outcomes = Admin(cluster).delete_topics(wanted)
    refused = []
    for name, refusal in outcomes.items():
        if refusal is None:
            say(f"deleted topic {name}")
        elif if_exists and refusal.code in _UNKNOWN:
            say(f"topic {name} does not exist")
        else:
            refused.append(refusal)
    raise_together(refused)


_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


def _wanted(names: Sequence[str], more_names: Sequence[str]) -> list[str]:
    wanted = all_names(names, more_names)
    if not wanted:
        raise click.UsageError("Name at least one topic.")
    return wanted


def _shape(partitions_count: int, replication_factor: int) -> str:
    return (
        "" if partitions_count < 0 else f" with partitions={partitions_count} replication-factor={replication_factor}"
    )


def _settings_of(admin: Admin, name: str) -> dict[str, str]:
    """The settings of this topic's own."""
    from ottla.client.admin.configs import ConfigResource, ConfigSource, ResourceType

    entries = admin.describe_configs(ConfigResource(ResourceType.TOPIC, name))
    return {
        entry.name: entry.value or ""
        for entry in sorted(entries.values())
        if entry.source is ConfigSource.DYNAMIC_TOPIC
    }
