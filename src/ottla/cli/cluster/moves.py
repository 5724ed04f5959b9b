"""`ottla cluster plan`, `rebalance` and `drain`: moves of replicas between brokers, and their progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import bootstrap_flag, open_cluster, output_flag
from ottla.cli.cluster.connection import CLIENT_ID
from ottla.cli.output import data_lines, say, table
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from ottla.client.admin.replicas import describe_replicas
from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.cli.cluster.replica_plan import Move
    from ottla.client.admin.replicas import Targets
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.metadata import TopicInfo

POLL_INTERVAL_S: Final = 1.0
# Of one broker: one that hangs must not keep a plan from being made.
ANSWER_WITHIN_MS: Final = 10_000
MOVES_SHOWN: Final = 50
# In one request.
MOVES_PER_REQUEST: Final = 500
# The controller knows the end of a move first: the broker that lists the replicas may learn it later.
LOOKS_AT_THE_END: Final = 6

# Kafka's settings (KIP-73), of brokers and of topics.
RATES: Final = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
FOLLOWERS: Final = "follower.replication.throttled.replicas"
LEADERS: Final = "leader.replication.throttled.replicas"
_OWN_SOURCES: Final = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_TOPIC)


class Inventory(NamedTuple):
    """The replicas of every partition, the live brokers with their racks, and the size of a replica."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    racks: Mapping[int, str | None]
    sizes_bytes: Mapping[TopicPartition, int]


throttle_flag: Final = click.option(
    "--throttle",
    "rate_bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="The most bytes a second that a broker copies for moves.  [default: as fast as it can]",
)
no_wait_flag: Final = click.option(
    "--no-wait", "returns_at_once", is_flag=True, help="Begin the moves, and do not wait for their end."
)


def take_inventory(cluster: Cluster) -> Inventory:
    """Raises `ClientError`; a broker that does not report its sizes causes a warning, and its replicas count as
    those of others.
    """
    admin = Admin(cluster)
    topics, info = admin.list_topics(), admin.describe_cluster()
    replicas = _replicas_of(topics)
    sizes: dict[TopicPartition, int] = {}
    for node_id in info.brokers:
        try:
            stored = describe_replicas(cluster, node_id, ANSWER_WITHIN_MS)
        except ClientError as error:
            say(f"broker {node_id} does not report the sizes of its replicas: {error}", err=True)
            continue
        for partition, replica in stored.items():
            sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
    return Inventory(replicas, {node_id: broker.rack for node_id, broker in info.brokers.items()}, sizes)


def plan_text(moves: Sequence[Move]) -> list[str]:
    """A table of the first moves, and what all of them amount to."""
    if not moves:
        return ["Nothing to move."]
    rows = [
        (move.partition, _listed(move.before), _listed(move.after), move.copied_bytes) for move in moves[:MOVES_SHOWN]
    ]
    lines = table(("PARTITION", "REPLICAS", "NEW-REPLICAS", "BYTES"), rows)
    if len(moves) > MOVES_SHOWN:
        lines.append(f"... and {len(moves) - MOVES_SHOWN} more")
    copied_count = sum(len(move.added) for move in moves)
    copied_bytes = sum(move.copied_bytes for move in moves)
    changed, copied = counted(len(moves), "partition"), counted(copied_count, "replica")
    lines.append(f"to change: {changed}; to copy: {copied}, {counted(copied_bytes, 'byte')}")
    return lines


def plan_object(moves: Sequence[Move]) -> dict[str, object]:
    """As `kafka-reassign-partitions --reassignment-json-file` takes it."""
    partitions = [
        {"topic": move.partition.topic, "partition": move.partition.partition, "replicas": list(move.after)}
        for move in moves
    ]
    return {"version": 1, "partitions": partitions}


def carry_out(cluster: Cluster, moves: Sequence[Move], rate_bytes: int | None, *, returns_at_once: bool) -> None:
    """Begin the moves; show their progress until all have ended, and then end the throttle.

    Raises `ClientError`, while started moves continue; and `ClickException` when moves ended without their replicas.
    """
    admin = Admin(cluster)
    if rate_bytes is not None:
        _throttle(admin, moves, rate_bytes)
    are_over = False
    unmoved: Mapping[Move, Sequence[int]] = {}
    try:
        _alter(admin, {move.partition: move.after for move in moves})
        say(f"{counted(len(moves), 'move')} under way.  `ottla cluster rebalance --cancel` ends that.")
        if not returns_at_once:
            unmoved = _show_progress(admin, moves)
            are_over = True
    finally:
        # Also when a broker refused some of them, or Ctrl-C ended the wait: nothing else would end it.
        if rate_bytes is not None and not are_over:
            say("The throttle stays: end it with `ottla cluster rebalance --cancel` when the moves have ended.")
    if rate_bytes is not None and are_over:
        end_throttle(admin)
    if unmoved:
        raise click.ClickException(unmoved_text(unmoved, len(moves)))


def not_moved(moves: Iterable[Move], replicas: Mapping[TopicPartition, Sequence[int]]) -> Mapping[Move, Sequence[int]]:
    """Those whose partition has other replicas than were wanted, with these; one that was deleted has none to move."""
    found = {move: replicas[move.partition] for move in moves if move.partition in replicas}
    return {move: nodes for move, nodes in found.items() if tuple(nodes) != move.after}


def unmoved_text(unmoved: Mapping[Move, Sequence[int]], moves_count: int) -> str:
    held = Counter(node for move, nodes in unmoved.items() for node in move.removed if node in nodes)
    clauses = [
        f"{len(unmoved)} of {counted(moves_count, 'partition')} not moved: that was cancelled, or ended elsewhere"
    ]
    clauses += [f"broker {node} still holds {count} that were to leave it" for node, count in sorted(held.items())]
    return "; ".join(clauses)


def end_moves(cluster: Cluster) -> int:
    """End all moves under way, and the throttle; returns how many there were."""
    admin = Admin(cluster)
    ongoing = admin.list_reassignments()
    # One that has come to its end meanwhile needs no other.
    _alter(admin, dict.fromkeys(ongoing), but=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    end_throttle(admin)
    return len(ongoing)


def require_no_moves(cluster: Cluster) -> None:
    """A plan is made for replicas that stay where they are meanwhile."""
    ongoing = Admin(cluster).list_reassignments()
    if ongoing:
        raise click.ClickException(
            f"{counted(len(ongoing), 'move')} already under way: wait for their end (`ottla cluster status`), or end "
            "that with `ottla cluster rebalance --cancel`"
        )


def end_throttle(admin: Admin) -> None:
    """Of all live brokers and topics, as far as one is set."""
    for node_id in admin.describe_cluster().brokers:
        _unset(admin, ConfigResource(ResourceType.BROKER, str(node_id)), RATES)
    for topic in admin.list_topics():
        _unset(admin, ConfigResource(ResourceType.TOPIC, topic.name), (FOLLOWERS, LEADERS))


def _alter(admin: Admin, targets: Targets, *, but: ErrorCode | None = None) -> None:
    partitions = sorted(targets)
    refused: list[BrokerRefused] = []
    for first in range(0, len(partitions), MOVES_PER_REQUEST):
        wanted = {partition: targets[partition] for partition in partitions[first : first + MOVES_PER_REQUEST]}
        results = admin.alter_reassignments(wanted).values()
        refused += [result for result in results if result is not None and result.code is not but]
    for refusal in refused[1:]:
        say(str(refusal), err=True)
    if refused:
        raise refused[0]


def _show_progress(admin: Admin, moves: Sequence[Move]) -> Mapping[Move, Sequence[int]]:
    """Until no move is under way; returns those that ended without the wanted replicas, with those there are."""
    wanted = {move.partition for move in moves}
    total_bytes = sum(move.copied_bytes for move in moves)
    sizes = {move.partition: move.copied_bytes for move in moves}
    names = sorted({partition.topic for partition in wanted})
    shown = -1
    looks_left = LOOKS_AT_THE_END
    while True:
        ongoing = wanted.intersection(admin.list_reassignments(wanted))
        unmoved = not_moved(moves, _replicas_of(admin.describe_topics(names)))
        left = ongoing.union(move.partition for move in unmoved)
        if len(wanted) - len(left) != shown:
            shown = len(wanted) - len(left)
            done_bytes = total_bytes - sum(sizes[partition] for partition in left)
            say(f"{shown} of {counted(len(wanted), 'partition')} moved, {done_bytes} of {counted(total_bytes, 'byte')}")
        looks_left = LOOKS_AT_THE_END if ongoing else looks_left - 1
        if not left or looks_left == 0:
            return unmoved
        time.sleep(POLL_INTERVAL_S)


def _replicas_of(topics: Iterable[TopicInfo]) -> Mapping[TopicPartition, Sequence[int]]:
    return {
        TopicPartition(topic.name, index): partition.replicas
        for topic in topics
        for index, partition in topic.partitions.items()
    }


def _throttle(admin: Admin, moves: Sequence[Move], rate_bytes: int) -> None:
    """As `kafka-reassign-partitions --throttle` does: all live brokers, and the replicas that move."""
    rates = [ConfigChange(name, ConfigOperation.SET, str(rate_bytes)) for name in RATES]
    for node_id in admin.describe_cluster().brokers:
        admin.alter_configs(ConfigResource(ResourceType.BROKER, str(node_id)), rates)
    for topic in sorted({move.partition.topic for move in moves if move.added}):
        of_topic = [move for move in moves if move.partition.topic == topic and move.added]
        lists = {
            FOLLOWERS: _pairs((move.partition.partition, move.added) for move in of_topic),
            LEADERS: _pairs((move.partition.partition, move.before) for move in of_topic),
        }
        changes = [ConfigChange(name, ConfigOperation.SET, text) for name, text in lists.items()]
        admin.alter_configs(ConfigResource(ResourceType.TOPIC, topic), changes)


def _unset(admin: Admin, resource: ConfigResource, names: Collection[str]) -> None:
    found = admin.describe_configs(resource, list(names))
    is_set = [name for name, entry in found.items() if entry.source in _OWN_SOURCES]
    if is_set:
        admin.alter_configs(resource, [ConfigChange(name, ConfigOperation.DELETE) for name in is_set])


def _pairs(replicas: Iterable[tuple[int, Sequence[int]]]) -> str:
    return ",".join(f"{index}:{node}" for index, nodes in replicas for node in nodes)


def _listed(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


@click.command(name="plan")
@bootstrap_flag
@click.option(
    "--drain",
    "drained",
    type=int,
    multiple=True,
    metavar="ID",
    help="A broker to leave without replicas; may be repeated.",
)
@output_flag("As kafka-reassign-partitions takes it.")
def plan(bootstrap: str, drained: tuple[int, ...], as_data: bool) -> None:
    """Show the moves that would spread replicas evenly over the live brokers and their racks.

    \b
    ottla cluster plan --drain 3

    Nothing is changed.  BYTES are those that would be copied.
    """
    from ottla.cli.cluster.replica_plan import planned

    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        found = take_inventory(cluster)
    moves = planned(found.replicas, found.racks, found.sizes_bytes, drained=drained)
    say(*(data_lines(plan_object(moves)) if as_data else plan_text(moves)))


@click.command(name="rebalance")
@bootstrap_flag
@throttle_flag
@no_wait_flag
@click.option("--cancel", "cancels", is_flag=True, help="End all moves under way, and their throttle, instead.")
def rebalance(bootstrap: str, rate_bytes: int | None, returns_at_once: bool, cancels: bool) -> None:
    """Spread replicas evenly over the live brokers and their racks, as `ottla cluster plan` shows.

    \b
    ottla cluster rebalance --throttle 50000000

    Started moves continue when this command is stopped.  Reads and writes continue meanwhile.
    """
    from ottla.cli.cluster.replica_plan import planned

    if cancels and (rate_bytes is not None or returns_at_once):
        raise click.UsageError("--cancel goes without --throttle and --no-wait.")
    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        if cancels:
            say(f"ended {counted(end_moves(cluster), 'move')}.")
            return
        require_no_moves(cluster)
        found = take_inventory(cluster)
        moves = planned(found.replicas, found.racks, found.sizes_bytes)
        say(*plan_text(moves))
        if moves:
            carry_out(cluster, moves, rate_bytes, returns_at_once=returns_at_once)


@click.command(name="drain")
@click.argument("node_id", type=int, metavar="ID")
@bootstrap_flag
@throttle_flag
@no_wait_flag
def drain(node_id: int, bootstrap: str, rate_bytes: int | None, returns_at_once: bool) -> None:
    """Move all replicas of a broker to the others, live or not.

    \b
    ottla cluster drain 3

    New topics may still be put on a broker that is live: stop it when it is empty.
    """
    from ottla.cli.cluster.replica_plan import planned

    with open_cluster(bootstrap, CLIENT_ID) as cluster:
        require_no_moves(cluster)
        found = take_inventory(cluster)
        if node_id not in found.racks and all(node_id not in nodes for nodes in found.replicas.values()):
            raise click.UsageError(f"Broker {node_id} is not in the cluster, and has no replica.")
        moves = planned(found.replicas, found.racks, found.sizes_bytes, drained=[node_id], spreads=False)
        say(*plan_text(moves))
        if moves:
            carry_out(cluster, moves, rate_bytes, returns_at_once=returns_at_once)
