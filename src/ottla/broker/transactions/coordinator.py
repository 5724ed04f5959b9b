"""All transactional ids of this broker: a shard for each partition of `__transaction_state` that it leads.

Commands go to the shard of their id; a shard that is not loaded, not here or has failed answers with an error.  What
the shards decide is carried out here: producer ids are allocated, markers are written (`marker_sender`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.broker.net.limits import TRANSACTIONAL_ID_LENGTH_MAX
from ottla.broker.partitions.coordinator_log import CoordinatorLog
from ottla.broker.partitions.partition import Partition
from ottla.broker.shards.served_shard import ShardEvents
from ottla.broker.shards.shard_table import Gathering, ShardSources, ShardTable
from ottla.broker.transactions.marker_sender import MarkerSender
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.model import broker_settings as setting
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TRANSACTIONS_TOPIC, ProducerId, TopicPartition
from ottla.model.settings import BrokerSettings
from ottla.observe.events import frequent
from ottla.replication.replica import Role
from ottla.runtime.clock import Moment
from ottla.runtime.steps import Steps
from ottla.transactions.commands import DescribeTransaction, IdCommand, ListReply, ListTransactions, refusal
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from ottla.transactions.decisions import Identity
    from ottla.transactions.shard import TransactionShard

log = logging.getLogger(__name__)

_EVENTS: Final = ShardEvents(
    "transactions.loaded", "transactions.unloaded", "transactions.not_loaded", "transactions.failed"
)


class TransactionMetrics(NamedTuple):
    """`by_state`: counts of transactional ids by the name of their state."""

    by_state: Counter[str]
    unwritten_markers_count: int


class ProducerIdSupply(Protocol):
    """Ids that no producer has had."""

    async def next(self) -> ProducerId: ...

    def begin_at(self, producer_id: int) -> None:
        """Give no id below this one."""
        ...


class TransactionCoordinator:
    """Every method runs on the event loop's thread and none waits."""

    def __init__(
        self,
        settings: TransactionSettings,
        load_bytes_max: int,
        sources: ShardSources,
        producer_ids: ProducerIdSupply,
        markers: MarkerSender,
    ) -> None:
        self._settings: Final = settings
        self._producer_ids: Final = producer_ids
        self._markers: Final = markers
        self._shards: Final = ShardTable(
            _EVENTS, TRANSACTIONS_TOPIC, self._new_shard, load_bytes_max, sources, self._on_serving
        )
        self._allocating: Final[set[asyncio.Task[None]]] = set()

    @property
    def exists(self) -> bool:
        """Whether the tree has `__transaction_state`."""
        return self._shards.topic_exists

    def state_of(self, transactional_id: str) -> ErrorCode:
        """NONE when this broker decides commands of this id now, else the error that its clients get."""
        return self._shards.state_of(transactional_id)

    def submit(self, command: IdCommand | DescribeTransaction, reply: Callable[[Any], None]) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the reply that the command names."""
        if not 0 < len(command.transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
            reply(refusal(command, ErrorCode.INVALID_REQUEST))
            return
        served = self._shards.find(command.transactional_id)
        if isinstance(served, ErrorCode):
            reply(refusal(command, served))
            return
        served.shard.submit(command, reply, self._shards.moment())
        self._shards.arm_for(served)

    def submit_to_all(self, command: ListTransactions, on_all: Callable[[list[ListReply]], None]) -> Steps[None]:
        """Submit the command to every shard, one in each step; `on_all` is called once, with all their answers."""
        led = self._shards.led()
        moment = self._shards.moment()
        gathering = Gathering(len(led), on_all)
        for index, served in enumerate(led):
            if served.error:
                gathering.place(index)(ListReply(served.error))
            else:
                served.shard.submit(command, gathering.place(index), moment)
            yield

    def metrics(self) -> TransactionMetrics:
        """Of the ids that this broker decides now."""
        by_state: Counter[str] = Counter()
        for shard in self._shards.deciding():
            by_state.update(transaction.state.title for _, transaction in shard.transactions())
        return TransactionMetrics(by_state, len(self._markers))

    def on_topics_changed(self, view: TopicsView) -> None:
        self.follow(view.by_name.get(TRANSACTIONS_TOPIC))

    def follow(self, topic: Topic | None) -> None:
        """See `ShardTable.follow`."""
        self._shards.follow(topic)

    def on_directory_offline(self) -> None:
        """The disk failed: no command can be decided any more, since none can be logged."""
        self._shards.on_directory_offline()

    def on_clock_moved(self) -> None:
        """Deadlines may have come that the timer waits for."""
        self._shards.on_clock_moved()

    def stop(self) -> None:
        """Answer everything that is parked: its clients find another coordinator, or this broker after its restart."""
        self._shards.stop()
        for task in self._allocating:
            task.cancel()

    def _new_shard(self, partition: Partition, coordinator_log: CoordinatorLog) -> TransactionShard:
        # See `late_imports`.
        from ottla.transactions.shard import TransactionShard

        services = _ShardServices(self, self._markers, partition)
        shard = TransactionShard(coordinator_log, self._settings, services, partition.leader_epoch)
        services.serve(shard)
        return shard

    def _on_serving(self, shard: TransactionShard, moment: Moment) -> None:
        # A log that was restored may be newer than the tree, which counts the ids that were given.
        self._producer_ids.begin_at(shard.greatest_producer_id + 1)

    def allocate(self, transactional_id: str, services: _ShardServices) -> None:
        task = asyncio.get_running_loop().create_task(self._allocate(transactional_id, services))
        self._allocating.add(task)
        task.add_done_callback(self._allocating.discard)

    async def _allocate(self, transactional_id: str, services: _ShardServices) -> None:
        producer_id: int | None = None
        try:
            producer_id = await self._producer_ids.next()
        except OttlaError as error:
            log.warning("producer_id.not_assigned", extra=frequent(error=str(error)))
        services.shard.on_producer_id(transactional_id, producer_id, self._shards.moment())
        self._arm_for(transactional_id)

    def marker_written(
        self, shard: TransactionShard, transactional_id: str, producer: Identity, partition: TopicPartition
    ) -> None:
        shard.on_marker_written(transactional_id, producer, partition, self._shards.moment())
        self._arm_for(transactional_id)

    def _arm_for(self, transactional_id: str) -> None:
        served = self._shards.find(transactional_id)
        if not isinstance(served, ErrorCode):
            self._shards.arm_for(served)


class _ShardServices:
    """`TransactionServices` of one shard, in the leader epoch of its partition; the owner of its markers."""

    def __init__(self, coordinator: TransactionCoordinator, markers: MarkerSender, partition: Partition) -> None:
        self._coordinator = coordinator
        self._markers = markers
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._shard: TransactionShard | None = None

    def serve(self, shard: TransactionShard) -> None:
        self._shard = shard

    @property
    def shard(self) -> TransactionShard:
        assert self._shard is not None, "a shard calls its services after its construction"
        return self._shard

    def request_producer_id(self, transactional_id: str) -> None:
        self._coordinator.allocate(transactional_id, self)

    def write_markers(self, markers: EndMarkers) -> None:
        self._markers.write(markers, self)

    # `MarkerOwner`.

    @property
    def is_over(self) -> bool:
        """Whether another coordinator completes what this one has decided.  A suspended one continues."""
        partition = self._partition
        leads = partition.role is Role.LEADER or partition.is_suspended_leader
        return not (leads and partition.is_served and partition.leader_epoch == self._leader_epoch)

    def marker_written(self, transactional_id: str, producer: Identity, partition: TopicPartition) -> None:
        self._coordinator.marker_written(self.shard, transactional_id, producer, partition)


def transaction_settings(broker: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(
        timeout_max_ms=broker[setting.TRANSACTION_MAX_TIMEOUT_MS],
        id_expiration_ms=broker[setting.TRANSACTIONAL_ID_EXPIRATION_MS],
        expiry_check_ms=broker[setting.TRANSACTIONAL_ID_EXPIRATION_CHECK_INTERVAL_MS],
    )
