"""Administration of a cluster: `ottla.Admin`, and what its methods take and return.

Topics         NewTopic, CreatedTopic, TopicInfo, PartitionInfo, ClusterInfo, BrokerInfo, OngoingMove, HIGH_WATERMARK
Settings       ConfigResource, ConfigResourceType, ConfigChange, ConfigOperation, ConfigEntry, ConfigSource
Offsets        OffsetAnswer, EARLIEST, LATEST, MAX_TIMESTAMP
Groups         ListedGroup, GroupDescription, GroupMember, CommittedOffset, Lag
Access         Acl, AclFilter, ResourcePattern, AccessEntry, ResourceType, PatternType, Operation, Permission
Users          UserCredential, SaslMechanism
Quotas         QuotaEntity, QuotaKind, EntityType, SetQuotas
Transactions   ListedTransaction, TransactionDescription, OpenTransaction
Errors         BrokerRefused, ClientError, UnknownGroup, UnknownTransactionalId; the others are in `ottla.errors`
"""

from __future__ import annotations

from ottla.client.admin.access import UserCredential
from ottla.client.admin.admin import HIGH_WATERMARK, Admin, CreatedTopic, NewTopic
from ottla.client.admin.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource
from ottla.client.admin.configs import ResourceType as ConfigResourceType
from ottla.client.admin.lag import Lag
from ottla.client.admin.quotas import SetQuotas
from ottla.client.admin.replicas import OngoingMove
from ottla.client.admin.transactions import (
    ListedTransaction,
    OpenTransaction,
    TransactionDescription,
    UnknownTransactionalId,
)
from ottla.client.fetching.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAnswer
from ottla.client.groups.group_types import CommittedOffset, GroupDescription, GroupMember, ListedGroup
from ottla.client.groups.groups import UnknownGroup
from ottla.client.wire.errors import BrokerRefused, ClientError
from ottla.client.wire.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from ottla.model.quotas import EntityType, QuotaEntity, QuotaKind
from ottla.security.acl import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.mechanism import SaslMechanism

__all__ = [
    "EARLIEST",
    "HIGH_WATERMARK",
    "LATEST",
    "MAX_TIMESTAMP",
    "AccessEntry",
    "Acl",
    "AclFilter",
    "Admin",
    "BrokerInfo",
    "BrokerRefused",
    "ClientError",
    "ClusterInfo",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "CreatedTopic",
    "EntityType",
    "GroupDescription",
    "GroupMember",
    "Lag",
    "ListedGroup",
    "ListedTransaction",
    "NewTopic",
    "OffsetAnswer",
    "OngoingMove",
    "OpenTransaction",
    "Operation",
    "PartitionInfo",
    "PatternType",
    "Permission",
    "QuotaEntity",
    "QuotaKind",
    "ResourcePattern",
    "ResourceType",
    "SaslMechanism",
    "SetQuotas",
    "TopicInfo",
    "TransactionDescription",
    "UnknownGroup",
    "UnknownTransactionalId",
    "UserCredential",
]
