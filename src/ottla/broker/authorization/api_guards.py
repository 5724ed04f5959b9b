"""The table of the rights that each API needs, and the calls through it.

Every API that the broker offers has a row (a test compares the tables).  Produce and Fetch check their rights where
they look up partitions (`partitions/authorized_topics.py`): their rows only name them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.broker.authorization import cluster_guards as cluster
from ottla.broker.authorization import group_guards as groups
from ottla.broker.authorization import topic_guards as topics
from ottla.broker.authorization import transaction_guards as transactions
from ottla.broker.authorization.guard import (
    GROUP_DENIED,
    Caller,
    Guard,
    Refused,
    of_cluster,
    of_group,
)
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import CallbackHandler, Handler
from ottla.broker.net.access import Access
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.heartbeat import HeartbeatResponse
from ottla.protocol.schemas.join_group import JoinGroupResponse
from ottla.protocol.schemas.leave_group import LeaveGroupResponse
from ottla.protocol.schemas.sync_group import SyncGroupResponse
from ottla.runtime.loop_offload import paced
from ottla.runtime.steps import Steps
from ottla.security.acl import Operation


class Row(NamedTuple):
    """`needs`: the rights, as docs/security.md lists them.

    No guard: every client may call it, or its handler checks.
    """

    needs: str
    guard: Guard | None


NOTHING: Final = "nothing"

API_GUARDS: Final[Mapping[ApiKey, Row]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Row("WRITE topic; in a transaction WRITE transactional id", None),
        ApiKey.FETCH: Row("READ topic; as a replica CLUSTER_ACTION cluster", None),
        ApiKey.LIST_OFFSETS: Row("DESCRIBE topic", topics.list_offsets),
        ApiKey.METADATA: Row("DESCRIBE topic; to create it automatically CREATE cluster or topic", topics.metadata),
        ApiKey.OFFSET_COMMIT: Row("READ group, READ topic", groups.offset_commit),
        ApiKey.OFFSET_FETCH: Row("DESCRIBE group, DESCRIBE topic", groups.offset_fetch),
        ApiKey.FIND_COORDINATOR: Row("DESCRIBE group or transactional id", groups.find_coordinator),
        ApiKey.JOIN_GROUP: Row(
            "READ group", of_group(lambda request, caller: JoinGroupResponse(error_code=GROUP_DENIED))
        ),
        ApiKey.HEARTBEAT: Row(
            "READ group", of_group(lambda request, caller: HeartbeatResponse(error_code=GROUP_DENIED))
        ),
        ApiKey.LEAVE_GROUP: Row(
            "READ group", of_group(lambda request, caller: LeaveGroupResponse(error_code=GROUP_DENIED))
        ),
        ApiKey.SYNC_GROUP: Row(
            "READ group", of_group(lambda request, caller: SyncGroupResponse(error_code=GROUP_DENIED))
        ),
        ApiKey.DESCRIBE_GROUPS: Row("DESCRIBE group", groups.describe_groups),
        ApiKey.LIST_GROUPS: Row("DESCRIBE cluster or group", groups.list_groups),
        ApiKey.SASL_HANDSHAKE: Row(NOTHING, None),
        ApiKey.API_VERSIONS: Row(NOTHING, None),
        ApiKey.CREATE_TOPICS: Row(
            "CREATE cluster or topic; for the settings in the answer DESCRIBE_CONFIGS topic", topics.create_topics
        ),
        ApiKey.DELETE_TOPICS: Row("DELETE topic", topics.delete_topics),
        ApiKey.DELETE_RECORDS: Row("DELETE topic", topics.delete_records),
        ApiKey.INIT_PRODUCER_ID: Row(
            "WRITE transactional id; without one IDEMPOTENT_WRITE cluster or WRITE on any topic",
            transactions.init_producer_id,
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Row("DESCRIBE topic or CLUSTER_ACTION cluster", topics.offset_for_leader_epoch),
        ApiKey.ADD_PARTITIONS_TO_TXN: Row(
            "WRITE transactional id, WRITE topic; between brokers CLUSTER_ACTION cluster",
            transactions.add_partitions_to_txn,
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: Row("WRITE transactional id, READ group", transactions.add_offsets_to_txn),
        ApiKey.END_TXN: Row("WRITE transactional id", transactions.end_txn),
        ApiKey.WRITE_TXN_MARKERS: Row("ALTER or CLUSTER_ACTION cluster", transactions.write_txn_markers),
        ApiKey.TXN_OFFSET_COMMIT: Row("WRITE transactional id, READ group, READ topic", groups.txn_offset_commit),
        ApiKey.DESCRIBE_TRANSACTIONS: Row(
            "DESCRIBE transactional id, DESCRIBE topic", transactions.describe_transactions
        ),
        ApiKey.LIST_TRANSACTIONS: Row("DESCRIBE transactional id", transactions.list_transactions),
        ApiKey.DESCRIBE_ACLS: Row("DESCRIBE cluster", of_cluster(Operation.DESCRIBE, cluster.describe_acls_refused)),
        ApiKey.CREATE_ACLS: Row("ALTER cluster", of_cluster(Operation.ALTER, cluster.create_acls_refused)),
        ApiKey.DELETE_ACLS: Row("ALTER cluster", of_cluster(Operation.ALTER, cluster.delete_acls_refused)),
        ApiKey.DESCRIBE_CONFIGS: Row("DESCRIBE_CONFIGS topic, group or cluster", cluster.describe_configs),
        ApiKey.ALTER_CONFIGS: Row("ALTER_CONFIGS topic, group or cluster", cluster.alter_configurations),
        ApiKey.SASL_AUTHENTICATE: Row(NOTHING, None),
        ApiKey.DESCRIBE_LOG_DIRS: Row(
            "DESCRIBE cluster", of_cluster(Operation.DESCRIBE, cluster.describe_log_dirs_refused)
        ),
        ApiKey.CREATE_PARTITIONS: Row("ALTER topic", topics.create_partitions),
        ApiKey.DELETE_GROUPS: Row("DELETE group", groups.delete_groups),
        ApiKey.ELECT_LEADERS: Row("ALTER cluster", of_cluster(Operation.ALTER, cluster.elect_leaders_refused)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
            "ALTER_CONFIGS topic, group or cluster", cluster.alter_configurations_incrementally
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(
            "ALTER cluster", of_cluster(Operation.ALTER, cluster.alter_partition_reassignments_refused)
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(
            "DESCRIBE cluster", of_cluster(Operation.DESCRIBE, cluster.list_partition_reassignments_refused)
        ),
        ApiKey.OFFSET_DELETE: Row("DELETE group, READ topic", groups.offset_delete),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(
            "DESCRIBE_CONFIGS cluster", of_cluster(Operation.DESCRIBE_CONFIGS, cluster.describe_client_quotas_refused)
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: Row(
            "ALTER_CONFIGS cluster", of_cluster(Operation.ALTER_CONFIGS, cluster.alter_client_quotas_refused)
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(
            "DESCRIBE cluster", of_cluster(Operation.DESCRIBE, cluster.describe_user_scram_credentials_refused)
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(
            "ALTER cluster", of_cluster(Operation.ALTER, cluster.alter_user_scram_credentials_refused)
        ),
        ApiKey.DESCRIBE_CLUSTER: Row(NOTHING, cluster.describe_cluster),
        ApiKey.DESCRIBE_PRODUCERS: Row("READ topic", topics.describe_producers),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Row("READ group, DESCRIBE topic", groups.consumer_group_heartbeat),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Row("DESCRIBE group, DESCRIBE topic", groups.consumer_group_describe),
        ApiKey.LIST_CONFIG_RESOURCES: Row(
            "DESCRIBE_CONFIGS cluster", of_cluster(Operation.DESCRIBE_CONFIGS, cluster.list_config_resources_refused)
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row("DESCRIBE topic", topics.describe_topic_partitions),
    }
)


class GuardedCalls:
    """Calls a handler with the part of a request for which its sender has the rights."""

    async def serve(
        self, api: ApiKey, handler: Handler, request: object, context: BrokerContext, call: Call, access: Access
    ) -> object:
        """The response."""
        guard = API_GUARDS[api].guard
        if guard is None:
            return await handler(request, context, call)
        outcome = await paced(guard(request, Caller(access, api, call.api_version, call.client_id), context))
        if isinstance(outcome, Refused):
            return outcome.response
        response = await handler(outcome.request, context, call)
        if outcome.finish is not None:
            await paced(outcome.finish(response))
        return response

    def answer(
        self,
        api: ApiKey,
        handler: CallbackHandler,
        request: object,
        context: BrokerContext,
        call: Call,
        reply: Callable[[object], None],
        access: Access,
    ) -> Steps[None]:
        """The same for a handler that replies by callback: `reply` takes the response, or the steps that make it."""
        guard = API_GUARDS[api].guard
        assert guard is not None, "every API that is answered by callback needs a right"
        outcome = yield from guard(request, Caller(access, api, call.api_version, call.client_id), context)
        if isinstance(outcome, Refused):
            reply(outcome.response)
            return
        on_reply = reply if outcome.finish is None else partial(_reply_finished, reply, outcome.finish)
        steps = handler(outcome.request, context, call._replace(rights=access.rights), on_reply)
        if steps is not None:
            yield from steps


def _reply_finished(reply: Callable[[object], None], finish: Callable[[object], Steps[None]], response: object) -> None:
    reply(_finished(response, finish))


def _finished(response: object, finish: Callable[[object], Steps[None]]) -> Steps[object]:
    if isinstance(response, Generator):
        response = yield from response
    yield from finish(response)
    return response
