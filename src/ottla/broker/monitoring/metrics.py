"""The metrics that `/metrics` returns, part by part, under the names of Apache Kafka's where it has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.net.listener import Listener
from ottla.broker.net.request_meter import RequestMeter
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.router import Router
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.broker.upkeep.flusher import Flusher
from ottla.observe.metrics import PAUSE, SAMPLES_MAX, Family, Pause, counter, gauge, histogram
from ottla.protocol.api import ApiKey
from ottla.replication.leadership import FollowerLag
from ottla.replication.replica import Role
from ottla.runtime.process import process_metrics
from ottla.storage.directory.log_directory import LogDirectory

if TYPE_CHECKING:
    # A standalone broker does not import them.
    from ottla.broker.replicas.cluster_part import ClusterPart
    from ottla.broker.replicas.replica_fetchers import ReplicaFetchers


def process_families(started_ms: int, node_id: int, cluster_id: str) -> Iterator[Family]:
    """Metrics that the platform does not report are left out.  `started_ms`: by the wall clock."""
    metrics = process_metrics()
    yield gauge(
        "ottla_broker_info",
        "Always 1; the labels name the broker.",
        {(str(node_id), cluster_id, __version__): 1},
        ("node_id", "cluster_id", "version"),
    )
    yield counter("process_cpu_seconds_total", "Processor time of this process.", metrics.cpu_s)
    yield gauge("process_start_time_seconds", "When this process started, since the epoch.", started_ms / 1_000)
    if metrics.resident_bytes is not None:
        yield gauge("process_resident_memory_bytes", "Resident memory.", metrics.resident_bytes)
    if metrics.open_files_count is not None:
        yield gauge("process_open_fds", "Open descriptors.", metrics.open_files_count)
    if metrics.open_files_max is not None:
        yield gauge("process_max_fds", "The limit of open descriptors.", metrics.open_files_max)


def certificate_metrics(days_left: Mapping[str, float]) -> Iterator[Family]:
    yield gauge(
        "ottla_tls_certificate_days_left",
        "Days until the certificate of a TLS listener expires.",
        {(listener,): days for listener, days in days_left.items()},
        ("listener",),
    )


# Of those that were used last: client ids are any text, and any number.
_QUOTA_RATES_MAX = 100


def quota_metrics(quotas: Quotas) -> Iterator[Family]:
    yield counter(
        "ottla_quota_throttled_requests_total",
        "Requests, and connections, that were throttled for a quota.",
        {(kind.value,): count for kind, count in quotas.throttled_count.items()},
        ("quota",),
    )
    yield counter(
        "ottla_quota_throttle_seconds_total",
        "The sum of their throttle times.",
        {(kind.value,): throttle_ms / 1_000 for kind, throttle_ms in quotas.throttled_ms.items()},
        ("quota",),
    )
    yield gauge("ottla_quota_sharers", "Users, clients and addresses whose rates are measured.", quotas.sharers_count)
    yield gauge(
        "ottla_quota_rate",
        "What users and clients with a quota use a second, of the 100 that did last: bytes, or percent of the loop.",
        {
            (each.kind.value, *(part or "" for part in each.sharer)): each.rate
            for each in quotas.rates(_QUOTA_RATES_MAX)
        },
        ("quota", "user", "client_id", "ip"),
    )


def request_metrics(
    router: Router,
    meter: RequestMeter,
    fetch: FetchHandler,
    partitions: PartitionTable,
    listeners: Sequence[Listener],
    flusher: Flusher,
) -> Iterator[Family]:
    yield counter(
        "kafka_network_requestmetrics_requests_total",
        "Requests, by API.",
        {(_shown(ApiKey.PRODUCE),): router.produce_count, (_shown(ApiKey.FETCH),): router.fetch_count}
        | {(_shown(api),): count for api, count in meter.counts.items()},
        ("request",),
    )
    yield histogram(
        "kafka_network_requestmetrics_totaltimems",
        "Milliseconds from a request's start until its answer is complete, a fetch's wait for records included; one "
        "Produce and one Fetch in 32 is timed, and counts for 32.",
        {(_shown(api),): times for api, times in meter.latencies.items()},
        ("request",),
    )
    yield counter(
        "kafka_server_brokertopicmetrics_bytesout_total", "Bytes of batches in answers to Fetch.", fetch.sent_bytes
    )
    yield gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections, by the listener's port.",
        {(str(listener.address[1]),): listener.connections_count for listener in listeners},
        ("listener",),
    )
    yield gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Fetches that wait for records, and produced batches that wait for their acknowledgement.",
        {
            (_shown(ApiKey.FETCH),): fetch.parked.fetches_count,
            (_shown(ApiKey.PRODUCE),): sum(each.waiting.produces_count for each in partitions),
        },
        ("delayedoperation",),
    )
    yield histogram(
        "kafka_log_logflushstats_logflushrateandtimems",
        "Milliseconds that the disk took for each flush.",
        flusher.times,
    )
    yield gauge(
        "ottla_flush_stuck",
        "1 from the event `flush.stuck` to `flush.recovered`.",
        int(flusher.is_stuck),
    )


def _shown(api: ApiKey) -> str:
    """As Apache Kafka names it: `OffsetCommit`."""
    return api.name.title().replace("_", "")


_TOPIC = ("topic",)
_PLACE = ("topic", "partition")
_FOLLOWED = ("topic", "partition", "follower")
_PAUSE_AFTER = 200


def partition_metrics(partitions: PartitionTable, directory: LogDirectory, now_ms: int) -> Iterator[Family | Pause]:
    """`now_ms`: by the monotonic clock."""
    served = {_place(each): each for each in partitions}
    refused_count = sum(1 for _ in partitions.refusals())
    records: Counter[tuple[str]] = Counter()
    sizes: Counter[tuple[str]] = Counter()
    replicated_bytes = 0
    for (topic, _), each in served.items():
        produced = each.metrics.produced
        records[topic,] += produced.records_count
        sizes[topic,] += produced.size_bytes
        replicated_bytes += each.metrics.replicated_bytes
    yield counter(
        "kafka_server_brokertopicmetrics_messagesin_total", "Records that this broker took as leader.", records, _TOPIC
    )
    yield counter(
        "kafka_server_brokertopicmetrics_bytesin_total", "Bytes of batches that it took as leader.", sizes, _TOPIC
    )
    yield counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes that it took from leaders, as their follower.",
        replicated_bytes,
    )
    led = [each for each in served.values() if each.role is Role.LEADER]
    yield gauge("kafka_server_replicamanager_partitioncount", "Partitions on this broker.", len(served) + refused_count)
    yield gauge(
        "kafka_server_replicamanager_leadercount",
        "Partitions that this broker leads.",
        len(led),
    )
    yield gauge(
        "kafka_server_replicamanager_produceridcount",
        "Idempotent producers that the partitions of this broker remember, each once for each partition.",
        sum(each.metrics.producers_count for each in served.values()),
    )
    yield from _replication_metrics(led, now_ms)
    yield gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions of this broker that it cannot serve: their logs are damaged, or the directory is offline.",
        refused_count if directory.offline is None else len(served) + refused_count,
    )
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "1 when the log directory is read-only.",
        0 if directory.offline is None else 1,
    )
    space = directory.space
    yield gauge("ottla_disk_free_bytes", "Free bytes on the data directory's file system.", space.free_bytes)
    yield gauge("ottla_disk_reserve_bytes", "Bytes that are held in reserve beside them.", space.reserve_bytes)
    yield gauge("ottla_disk_low", "1 while `disk.low` or `disk.full` holds.", int(space.is_low))
    yield gauge("ottla_disk_full", "1 while records are refused since the disk is full.", int(space.is_full))
    yield gauge(
        "kafka_log_log_logstartoffset",
        "The first offset, inclusive.",
        {place: each.log_start_offset for place, each in served.items()},
        _PLACE,
    )
    yield gauge(
        "kafka_log_log_logendoffset",
        "The next offset to be assigned.",
        {place: each.log_end_offset for place, each in served.items()},
        _PLACE,
    )
    yield gauge(
        "kafka_log_log_size",
        "Bytes of the segments.",
        {place: each.size_bytes for place, each in served.items()},
        _PLACE,
    )


def _replication_metrics(led: Sequence[Partition], now_ms: int) -> Iterator[Family | Pause]:
    """Of the partitions that this broker leads: their sum over all brokers is the cluster's."""
    replicated = [(each, len(each.node.origin)) for each in led if each.node is not None]
    yield gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here that lack a replica in sync.",
        sum(1 for each, replicas_count in replicated if each.in_sync_count < replicas_count),
    )
    yield gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here that refuse acks=all: fewer replicas are in sync than min.insync.replicas.",
        sum(1 for each, _ in replicated if not each.accepts_acks_all),
    )
    yield gauge(
        "kafka_cluster_partition_insyncreplicascount",
        "Replicas in sync of each partition led here that has several.",
        {_place(each): each.in_sync_count for each, replicas_count in replicated if replicas_count > 1},
        _PLACE,
    )
    lags: dict[tuple[str, ...], tuple[FollowerLag, int]] = {}
    for number, (each, replicas_count) in enumerate(replicated, 1):
        if replicas_count > 1:
            lags.update(
                ((*_place(each), str(lag.node_id)), (lag, each.metrics.lag_bytes(lag)))
                for lag in each.metrics.lags(now_ms)
            )
        if number % _PAUSE_AFTER == 0:
            # The bytes of one that lags are looked up in an index, which may have to be read from the disk.
            yield PAUSE
    yield gauge(
        "ottla_follower_lag_records",
        "Records that a follower lacks, of the partitions led here.",
        {place: lag.lag_records for place, (lag, _) in lags.items()},
        _FOLLOWED,
    )
    yield gauge(
        "ottla_follower_lag_bytes",
        "The size of the batches that a follower lacks, of the partitions led here.",
        {place: lag_bytes for place, (_, lag_bytes) in lags.items()},
        _FOLLOWED,
    )
    yield gauge(
        "ottla_follower_lag_seconds",
        "How long ago a follower was caught up, of the partitions led here.",
        {place: lag.lag_ms / 1_000 for place, (lag, _) in lags.items()},
        _FOLLOWED,
    )


def _place(partition: Partition) -> tuple[str, str]:
    return partition.topic_partition.topic, str(partition.index)


_GROUP_PLACE = ("consumergroup", "topic", "partition")
_PAUSE_AFTER_GROUPS = 500


def group_metrics(groups: GroupCoordinator, partitions: PartitionTable) -> Iterator[Family | Pause]:
    """Of the groups that this broker coordinates."""
    states: Counter[tuple[str, ...]] = Counter()
    members: dict[tuple[str, ...], int] = {}
    committed: dict[tuple[str, ...], int] = {}
    lags: dict[tuple[str, ...], int] = {}
    for number, group in enumerate(groups.metrics()):
        if number % _PAUSE_AFTER_GROUPS == _PAUSE_AFTER_GROUPS - 1:
            yield PAUSE
        states[group.kind, group.state_name] += 1
        if group.members_count:
            members[(group.group_id,)] = group.members_count
        for topic, index, offset in group.committed():
            if len(committed) > SAMPLES_MAX:
                # One above the limit: the registry reports that some were left out.
                break
            place = (group.group_id, topic, str(index))
            committed[place] = offset
            partition = partitions.find(topic, index)
            if partition is not None and partition.role is Role.LEADER:
                # A group that was reset beyond the end has no lag.
                lags[place] = max(partition.high_watermark - offset, 0)
    memories = {("members",): groups.member_bytes, ("offsets",): groups.offset_bytes}
    held = {kind: shared.held_bytes for kind, shared in memories.items()}
    limits = {kind: shared.limit_bytes for kind, shared in memories.items()}
    refused = {kind: shared.refused_count for kind, shared in memories.items()}
    count = sum(states.values())
    yield gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups of this coordinator.", count)
    yield gauge("ottla_groups", "Groups of this coordinator, by kind and state.", states, ("kind", "state"))
    yield gauge("ottla_group_memory_bytes", "Memory of all members and of all committed offsets.", held, ("kind",))
    yield gauge("ottla_group_memory_limit_bytes", "The most that they may take.", limits, ("kind",))
    about = "Joins and commits refused since the client, the group or all groups hold too much of that memory."
    yield counter("ottla_group_memory_refused_total", about, refused, ("kind",))
    yield gauge("kafka_consumergroup_members", "Members of each group that has any.", members, ("consumergroup",))
    yield gauge("kafka_consumergroup_current_offset", "The committed offset.", committed, _GROUP_PLACE)
    yield gauge(
        "kafka_consumergroup_lag",
        "Records from the committed offset to the high watermark, of partitions that this broker leads; "
        "for others subtract the committed offset from their leader's kafka_log_log_logendoffset.",
        lags,
        _GROUP_PLACE,
    )


def transaction_metrics(transactions: TransactionCoordinator) -> Iterator[Family | Pause]:
    """Of the transactional ids that this broker coordinates."""
    found = transactions.metrics()
    states = {(state,): count for state, count in found.by_state.items()}
    yield gauge("ottla_transactional_ids", "Transactional ids of this coordinator, by state.", states, ("state",))
    about = (
        "Markers of decided transactions that their partitions do not have yet; more than some for long means that a "
        "partition has no leader."
    )
    yield gauge("ottla_transaction_markers_unwritten", about, found.unwritten_markers_count)


def late_transaction_metrics(partitions: PartitionTable, open_since_ms: int) -> Iterator[Family | Pause]:
    """Of the partitions that this broker leads: transactions that their coordinators should have ended by now.

    `open_since_ms`: when their last batch must have come at the latest, by the wall clock.
    """
    late_count = 0
    for number, each in enumerate(partitions, 1):
        late_count += each.role is Role.LEADER and each.metrics.has_open_transaction_since(open_since_ms)
        if number % _PAUSE_AFTER == 0:
            yield PAUSE
    yield gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions led here with a transaction in which no batch has come for transaction.max.timeout.ms and five "
        "minutes: read_committed consumers wait, and no coordinator ends it. `ottla transaction find-hanging` shows "
        "which, and `abort` ends it.",
        late_count,
    )


def lifecycle_metrics(lifecycle: BrokerLifecycle, cluster: ClusterPart | None, now_ms: int) -> Iterator[Family]:
    """`cluster` is None for a standalone broker.  `now_ms`: by the lease's clock."""
    yield gauge("kafka_brokers", "Brokers that this one knows to be live, itself included.", len(lifecycle.live))
    yield gauge(
        "ottla_broker_registered",
        "1 while this broker is registered and certain of it: it leads and acknowledges.",
        0 if lifecycle.broker_epoch == NOT_REGISTERED or lifecycle.is_uncertain(now_ms) else 1,
    )
    if cluster is None:
        return
    elections_count = cluster.elector.elections_count
    yield counter("ottla_elections_total", "Elections that this broker wrote to the tree.", elections_count)
    yield counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Replicas in sync that this broker, as leader, has taken out.",
        cluster.in_sync_changes.shrinks_count,
    )
    yield counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Replicas that this broker, as leader, has taken into the in-sync set.",
        cluster.in_sync_changes.expansions_count,
    )


def replica_fetcher_metrics(fetchers: ReplicaFetchers) -> Iterator[Family]:
    yield counter(
        "kafka_server_fetcherstats_requests_total",
        "Fetches sent to leaders, as their follower.",
        fetchers.totals.requests_count,
    )
    yield counter(
        "kafka_server_fetcherstats_failures_total",
        "Connections to leaders that were not made, were lost, or were closed for what came.",
        fetchers.totals.failures_count,
    )
    yield gauge(
        "kafka_server_replicafetchermanager_partitioncount",
        "Partitions that this broker fetches from their leaders.",
        fetchers.followed_count,
    )
    yield gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that it does not fetch, since their logs take nothing any more.",
        fetchers.failed_count,
    )
