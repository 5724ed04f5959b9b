"""A group's nodes: their paths, of the 2011 paper and early Kafka, and their contents, small JSON objects.  Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.coordination.layout import CONSUMERS
from ottla.coordination.node_json import Fields, NodeDamaged, encode
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NO_OFFSET, TopicPartition, uuid_to_text

GROUP_NAME_LENGTH_MAX: Final = 249
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z", re.ASCII)


class BadGroupName(ConfigError):
    """The name of a group cannot be a part of a path."""

    hint = f"in ZooKeeper a group's name has 1 to {GROUP_NAME_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-'"


class GroupPaths(NamedTuple):
    """The paths of one group.

    >>> GroupPaths.of("jobs").offset(TopicPartition("page-views", 3))
    '/consumers/jobs/offsets/page-views/3'
    """

    group: str

    @classmethod
    def of(cls, group: str) -> GroupPaths:
        """Raises `BadGroupName`: early Kafka took the same names."""
        if _GROUP_NAME.match(group) is None or group in {".", ".."}:
            raise BadGroupName(f"{group[:GROUP_NAME_LENGTH_MAX]!r} is not the name of a group")
        return cls(group)

    @property
    def root(self) -> str:
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        return f"{self.root}/offsets"

    def consumer(self, consumer_id: str) -> str:
        return f"{self.ids}/{consumer_id}"

    def owners_of(self, topic: str) -> str:
        return f"{self.owners}/{topic}"

    def offsets_of(self, topic: str) -> str:
        return f"{self.offsets}/{topic}"

    def owner(self, partition: TopicPartition) -> str:
        return f"{self.owners}/{partition.topic}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        return f"{self.offsets}/{partition.topic}/{partition.partition}"


OFFSET_MAX: Final = 2**63 - 1


class ConsumerNode(NamedTuple):
    """A registered consumer: what it reads, and for people where it runs and since when (by its own clock)."""

    subscription: Subscription
    host: str
    pid: int
    client_id: str
    registered_ms: int


class OffsetContent(NamedTuple):
    """The next offset that the group reads of a partition (`NO_OFFSET`: of no one yet), and who wrote it.

    `claim` fences: it is None in what a release or an operator wrote.  `topic_id`: an offset of a topic that was
    deleted says nothing about one of the same name; None, as a person may have written it, goes for any.
    `writer` (a stream, or a program) and `written_ms` are for people.
    """

    offset: int
    claim: ClaimId | None
    topic_id: UUID | None
    writer: str
    written_ms: int


def encode_consumer(node: ConsumerNode) -> bytes:
    subscription = node.subscription
    content: dict[str, object] = {"version": 1}
    if subscription.filter is None:
        content |= {"pattern": "static", "subscription": dict(subscription.topics)}
    else:
        content |= {
            "pattern": "filter",
            "allow": subscription.filter.allow,
            "deny": subscription.filter.deny,
            "streams": subscription.filter_streams_count,
        }
    content |= {"host": node.host, "pid": node.pid, "client_id": node.client_id, "timestamp": str(node.registered_ms)}
    return encode(content)


def decode_consumer(path: str, data: bytes) -> ConsumerNode:
    """Raises `NodeDamaged`."""
    fields = Fields.parse(path, data)
    return ConsumerNode(
        _subscription(fields),
        fields.text("host"),
        fields.integer("pid"),
        fields.text("client_id"),
        _milliseconds(fields, "timestamp"),
    )


def _subscription(fields: Fields) -> Subscription:
    pattern = fields.text("pattern")
    try:
        if pattern == "static":
            topics = fields.nested("subscription")
            return Subscription({topic: topics.integer(topic) for topic in topics.content})
        if pattern == "filter":
            chosen = TopicFilter(fields.text("allow"), fields.text_or_none("deny"))
            return Subscription({}, chosen, fields.integer("streams"))
    except ConfigError as error:
        raise NodeDamaged(fields.path, str(error)) from error
    raise NodeDamaged(fields.path, f"has the pattern {pattern!r}, this program knows 'static' and 'filter'")


def encode_owner(stream: StreamId) -> bytes:
    """The stream's name alone, as in early Kafka."""
    return str(stream).encode()


def decode_owner(path: str, data: bytes) -> StreamId:
    """Raises `NodeDamaged`."""
    try:
        return StreamId.parse(data.decode())
    except ValueError as error:
        raise NodeDamaged(path, str(error)) from error


def encode_offset(content: OffsetContent) -> bytes:
    return encode(
        {
            "version": 1,
            "offset": content.offset,
            "claim": None if content.claim is None else str(content.claim),
            "topic_id": None if content.topic_id is None else uuid_to_text(content.topic_id),
            "writer": content.writer,
            "timestamp": str(content.written_ms),
        }
    )


def decode_offset(path: str, data: bytes) -> OffsetContent:
    """Raises `NodeDamaged`."""
    fields = Fields.parse(path, data)
    offset, claim, topic_id = fields.integer("offset"), fields.text_or_none("claim"), fields.text_or_none("topic_id")
    if not NO_OFFSET <= offset <= OFFSET_MAX:
        raise NodeDamaged(path, f"'offset' is {offset}")
    try:
        claim_id = None if claim is None else ClaimId.parse(claim)
    except ValueError:
        raise NodeDamaged(path, f"'claim' is {claim!r}: not the id of a claim") from None
    # The rest is for people, who may have written the node by hand and left it out.
    return OffsetContent(
        offset,
        claim_id,
        None if topic_id is None else fields.uuid_of(topic_id),
        fields.text_or_none("writer") or "",
        _milliseconds(fields, "timestamp") if "timestamp" in fields.content else 0,
    )


def _milliseconds(fields: Fields, name: str) -> int:
    text = fields.text(name)
    if not (text.isascii() and text.isdigit()):
        raise NodeDamaged(fields.path, f"{name!r} should be a number, not {text!r}")
    return int(text)
