"""The broker of a data directory: whether it runs and answers, the partitions that it refuses; else, whether it could
start."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from ottla.cli.client_flags import given_security
from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.cli.log.copied_tree import copied_topic_ids, lost_tree_of, read_copied_tree
from ottla.client.admin.admin import Admin
from ottla.client.wire.address import Address
from ottla.client.wire.broker_standing import describe_standing
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import ClientSecurity
from ottla.coordination.embedded.errors import TreeStoreError
from ottla.coordination.topics_view import TopicsView
from ottla.maintenance.inspect import Severity, foreign_segments, verify_flushed_ends
from ottla.model.counted import counted, listed
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.listener import Listener, address_text
from ottla.model.serve_options import ServeOptions
from ottla.runtime.disk import Disk
from ottla.runtime.host_names import addresses_of
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_identity import Owner, check, owner_of
from ottla.storage.directory.directory_lock import LOCK_FILE, FileLock
from ottla.storage.directory.directory_tree import TREE_FILE
from ottla.storage.directory.partition_directory import find_missing_logs, is_no_log
from ottla.storage.directory.process_places import finishing_hint, has_unfinished_resize, read_places
from ottla.storage.errors import DirectoryLocked
from ottla.storage.log_files import FLUSHED_ENDS_FILE, base_offsets_in, topic_partition_of

AREA: Final = "tree"
_SHOWN: Final = 10


def tree_findings(disk: Disk, data_dir: str, names: Sequence[str]) -> Iterator[Finding]:
    """Compares the tree with the logs: what a start would refuse, or leave where it is.

    `names` are the directories that are named like partitions.  Raises `OSError`.
    """
    if directory_tree.is_tree_elsewhere(disk, data_dir):
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
    # The directories of further processes have other partitions of the tree.
    has_all = not directory_tree.is_shared(disk, data_dir)
    gone = find_missing_logs(disk, data_dir, lambda: copied_topic_ids(f"{data_dir}/{TREE_FILE}")) if has_all else []
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
    return listed(names, _SHOWN)


ASK_TIMEOUT_MS: Final = 3_000
CUT_OFF_HINT: Final = "look at ZooKeeper, and at the network between; the broker's log says since when"
_PARTITIONS_SHOWN: Final = 10


def is_running(data_dir: str) -> str | None:
    """The holder of the directory's lock, as text; None when it is free, and for a directory that is not Ottla's."""
    try:
        if owner_of(PosixDisk(), data_dir) is not Owner.OTTLA or not os.path.exists(f"{data_dir}/{LOCK_FILE}"):
            return None
    except (OSError, OttlaError):
        return None
    lock = FileLock()
    try:
        lock.acquire(data_dir)
    except DirectoryLocked as error:
        return str(error)
    except OSError:
        return None
    lock.release()
    return None


def running_findings(listeners: Sequence[Listener], held: str) -> Iterator[Finding]:
    """Query it over the wire, at the addresses in the settings."""
    yield ok("lock", held)
    for listener in listeners:
        host = "localhost" if listener.is_every_interface else listener.host
        if listener.port == 0:
            yield warning(
                "broker", "its port was chosen at the start, so it cannot be queried", "give --listen HOST:PORT"
            )
            continue
        address, security = address_text(host, listener.port), given_security()
        if listener.protocol != security.protocol:
            yield warning(
                "broker",
                f"{address} has the protocol {listener.protocol}, so it is not queried",
                "give --command-config FILE with it",
            )
            continue
        yield from _answers(address, security)


def _answers(bootstrap: str, security: ClientSecurity) -> Iterator[Finding]:
    options = ClientOptions(client_id="ottla-doctor", call_timeout_ms=ASK_TIMEOUT_MS, security=security)
    try:
        with Cluster(bootstrap, options) as cluster:
            topics = Admin(cluster).list_topics()
            info = cluster.info
            yield ok("broker", f"{bootstrap} answers: cluster {info.cluster_id}, {counted(len(topics), 'topic')}")
            if describe_standing(cluster, ASK_TIMEOUT_MS).fenced_ids:
                yield problem("broker", f"{bootstrap} is cut off from ZooKeeper: it leads nothing", CUT_OFF_HINT)
            for broker in info.brokers.values():
                yield _reachable(cluster, broker.node_id, broker.address)
            refused = [
                f"{topic.name}-{each.partition}"
                for topic in topics
                for each in topic.partitions.values()
                if each.leader_id < 0 or each.error_code
            ]
    except ClientError as error:
        yield problem("broker", f"{bootstrap}: {error}", "is it another listener? give its --listen or --config")
        return
    if refused:
        yield problem(
            "broker",
            f"partitions that are not served: {listed(refused, _PARTITIONS_SHOWN)}",
            "its log says why (log.refused, log.offline); stop it and run `ottla log repair DIR`",
        )


def _reachable(cluster: Cluster, node_id: int, address: Address) -> Finding:
    try:
        cluster.connect_broker(node_id, cluster.retrying.deadline())
    except ClientError as error:
        return problem("address", f"clients get the address {address}: {error}", "correct advertised.listeners")
    return ok("address", f"clients get the address {address}, and it answers")


def stopped_findings(options: ServeOptions, node_id: int) -> Iterator[Finding]:
    """Whether `serve` could start: addresses, the directory's owner and its content."""
    listeners, advertised, data_dir = options.listeners, options.advertised, options.data_dir
    yield from _bound(options)
    if advertised == () and any(listener.is_every_interface for listener in listeners):
        yield ok("address", "clients get the address that they reached")
    for each in advertised:
        if not addresses_of(each.host):
            yield problem(
                "address",
                f"advertised.listeners: {each.host} is a name that this machine cannot resolve",
                "clients get it and must resolve it: use a name or an IP address that they know",
            )
        elif each.is_loopback and not all(listener.is_loopback for listener in listeners):
            yield warning(
                "address",
                f"advertised.listeners gives clients {each.host}, which on other machines is themselves",
                "use this machine's name or address as others see it",
            )
        else:
            yield ok("address", f"clients get the address {address_text(each.host, each.port)}")
    if os.path.isdir(data_dir):
        try:
            yield from _directory(data_dir, node_id)
            if has_unfinished_resize(PosixDisk(), data_dir):
                text = f"a change of the number of processes of {data_dir} was interrupted, and no broker may start"
                yield problem("directory", text, finishing_hint(data_dir))
            places = read_places(PosixDisk(), data_dir)
            for place in () if places is None else places.brokers[1:]:
                if os.path.isdir(place.path(data_dir)):
                    yield ok("directory", f"further process: {place.path(data_dir)}")
                    yield from _directory(place.path(data_dir), place.node_id)
        except ConfigError as error:
            yield problem("directory", str(error), error.hint or "")
        except OSError as error:
            yield problem(
                "directory",
                f"{data_dir} cannot be read: {error}",
                "run as its owner, or choose another directory",
            )


def _bound(options: ServeOptions) -> Iterator[Finding]:
    """All that a start listens on, held at once as it does: two of them may have one port."""
    from ottla.broker.net.listener import bind

    wanted = [(listener, "") for listener in options.listeners]
    if options.admin_listener is not None:
        wanted.append((options.admin_listener, ", for metrics"))
    if options.registry is not None:
        wanted.append((options.registry.listener, ", for schemas"))
    with ExitStack() as bound:
        for listener, purpose in wanted:
            try:
                bound.callback(bind(listener.host, listener.port).close)
            except ConfigError as error:
                yield problem("address", f"{error}{purpose}", error.hint or "choose another port")
            else:
                yield ok(
                    "address", f"{address_text(listener.host or 'every interface', listener.port)} is free{purpose}"
                )


def _directory(data_dir: str, node_id: int) -> Iterator[Finding]:
    disk = PosixDisk()
    try:
        # As a start does.
        check(disk, data_dir, node_id, None)
        owner = owner_of(disk, data_dir)
    except OttlaError as error:
        yield problem("directory", str(error), error.hint or "")
        return
    if owner is Owner.OTTLA:
        yield from _ours(disk, data_dir)


def _ours(disk: PosixDisk, data_dir: str) -> Iterator[Finding]:
    paths = [f"{data_dir}/{name}" for name in sorted(os.listdir(data_dir)) if topic_partition_of(name) is not None]
    names = [os.path.basename(path) for path in paths if disk.is_directory(path)]
    yield from tree_findings(disk, data_dir, names)
    yield from _contents(disk, data_dir, [name for name in names if not is_no_log(disk, f"{data_dir}/{name}")])


def _contents(disk: PosixDisk, data_dir: str, partitions: Sequence[str]) -> Iterator[Finding]:
    if checkpoints.has_clean_shutdown_mark(disk, data_dir) or not partitions:
        yield ok(
            "directory",
            f"{counted(len(partitions), 'partition')}, stopped cleanly: the next start trusts that they are whole, "
            f"and `ottla log verify --deep {shlex.quote(data_dir)}` checks",
        )
    else:
        yield ok(
            "directory",
            f"{counted(len(partitions), 'partition')}, not stopped cleanly: the next start checks their ends",
        )
    found = verify_flushed_ends(disk, data_dir, [f"{data_dir}/{name}" for name in partitions])
    unrecorded = [each.problem for each in found if each.severity is Severity.DAMAGE]
    if unrecorded:
        yield problem(
            "directory",
            f"{FLUSHED_ENDS_FILE} is damaged or missing: {'; '.join(unrecorded[:_PARTITIONS_SHOWN])}",
            f"restore the directory from a backup, or see what `ottla log repair {shlex.quote(data_dir)}` would keep",
        )
    bad = [name for name in partitions if not _has_topic_id(disk, f"{data_dir}/{name}")]
    if bad:
        yield problem(
            "directory",
            f"partition.metadata is missing or damaged: {', '.join(bad[:_PARTITIONS_SHOWN])}",
            f"ottla log repair {shlex.quote(data_dir)}",
        )
    aside = [name for name in os.listdir(data_dir) if name.endswith((".damaged", ".importing"))]
    if aside:
        yield warning(
            "directory",
            f"set aside by repair or left by an import: {', '.join(sorted(aside)[:_PARTITIONS_SHOWN])}",
            "remove them when you do not need them any more",
        )


def _has_topic_id(disk: PosixDisk, path: str) -> bool:
    """A directory without batches is half created, and the next start completes it."""
    if not any(disk.file_size_bytes(f"{path}/{base:020d}.log") for base in base_offsets_in(os.listdir(path))):
        return True
    try:
        return checkpoints.read_topic_id(disk, path) is not None
    except checkpoints.DamagedCheckpoint:
        return False
