"""This broker among the live ones: its registration, the others', and how long it may count on its session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.coordination.registries import BrokersView
from ottla.coordination.tree import Lease
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import PartitionState

NOT_REGISTERED: Final = -1

_NOBODY: Final[Mapping[NodeId, int]] = MappingProxyType({})


class BrokerLifecycle:
    """Other modules read the fields; `Registrar` and `Coordination` call the methods, and `LeaseWatch` sets
    `is_suspended`.

    A broker leads only in the life that the partition's state names: after a restart it has another broker epoch, and
    never resumes what it led before (KIP-903).  The one broker of an embedded tree is `sole`: no other can have led in
    its absence, so it leads each partition whose state names its node id.
    """

    __slots__ = ("broker_epoch", "is_sole", "is_suspended", "lease", "live", "node_id")

    def __init__(self, node_id: NodeId, lease: Lease | None = None, *, is_sole: bool = False) -> None:
        self.node_id: Final = node_id
        self.is_sole: Final = is_sole
        # None: there is no session that could end without this process.
        self.lease: Final = lease
        # Of the present registration, `NOT_REGISTERED` while there is none.
        self.broker_epoch = NOT_REGISTERED
        # The live brokers and their broker epochs, this one included.
        self.live = _NOBODY
        # The lease was over when `LeaseWatch` compared it last: this broker serves as if others led, until it is
        # extended.  `is_uncertain` compares now.
        self.is_suspended = False

    @classmethod
    def sole(cls, node_id: NodeId) -> BrokerLifecycle:
        """The only broker of its tree."""
        return cls(node_id, is_sole=True)

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch != NOT_REGISTERED

    def registered(self, broker_epoch: int) -> None:
        """The tree has this broker's registration."""
        self.broker_epoch = broker_epoch
        self.live = MappingProxyType({**self.live, self.node_id: broker_epoch})

    def unregistered(self) -> None:
        """The session ended, and the registration with it: this broker leads nothing until it has another."""
        self.broker_epoch = NOT_REGISTERED

    def saw(self, view: BrokersView) -> None:
        """The live brokers as the tree has them now."""
        self.live = MappingProxyType(view.epochs())

    def is_live(self, node_id: int, broker_epoch: int) -> bool:
        """Whether this is the present life of a live broker."""
        return broker_epoch != NOT_REGISTERED and self.live.get(NodeId(node_id)) == broker_epoch

    def is_uncertain(self, now_ms: int) -> bool:
        """Whether this broker's session may have ended, by `Clock.boottime_ms`: then it must acknowledge nothing."""
        return self.lease is not None and now_ms >= self.lease.until_ms

    def own_epoch(self, state: PartitionState) -> int:
        """The broker epoch in which this broker may lead a partition with this state."""
        if self.is_sole:
            return next((epoch for node_id, epoch in state.in_sync if node_id == self.node_id), self.broker_epoch)
        return self.broker_epoch
