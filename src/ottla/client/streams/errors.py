"""What a reader of streams can meet.

OttlaError
  PoisonMessage     a message that cannot be read, at the place that it names
  NoPosition        no place to start from: no committed offset, or one that is not in the log
  NotAssigned       the partition is not this stream's, or not any more
  CommitFailed      an offset was not committed
    RebalanceInProgress  it is committed when its partition is given back
  ConsumerClosed    the connector was closed
  ConsumerBusy      a consumer is for one thread, and another one is in it
"""

from __future__ import annotations

from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition


class PoisonMessage(OttlaError):
    """A message that cannot be read: its deserializer failed, or its batch is damaged (then the first offset of it).

    `cause` is the error itself.  It is raised for each request of a message until `skip` or `seek`.
    """

    hint = "skip() steps over it, seek() reads on elsewhere"

    def __init__(self, partition: TopicPartition, offset: int, what: str, cause: Exception) -> None:
        super().__init__(f"{partition}, offset {offset}: {what}: {type(cause).__name__}: {cause}")
        self.topic = partition.topic
        self.partition = partition.partition
        self.offset = offset
        self.cause = cause


class NoPosition(OttlaError):
    """`auto_offset_reset` is "error", and there is no committed offset, or it is not in the log.

    Or the log cannot say: a damaged batch points out of it.
    """

    hint = 'seek() says where to read on; or set auto_offset_reset to "earliest" or "latest"'


class NotAssigned(OttlaError):
    """The partition is not this stream's, or not any more: nothing was done."""

    hint = "partitions move when consumers join and leave: see `partitions` of a stream, `assignment` of a consumer"


class CommitFailed(OttlaError):
    """Offsets were not committed.  Messages from the last committed ones on may be handed out again."""


class RebalanceInProgress(CommitFailed):
    """Partitions of the commit are being given back, which waits for the next `poll`: there `on_revoke` runs, and they
    are committed with it.  If that comes too late they are lost to the group, and not committed.
    """

    hint = "poll(), in which on_revoke runs; messages after the committed ones may come again, here or elsewhere"


class ConsumerClosed(OttlaError):
    """The connector or the consumer was closed."""

    hint = "open a new one"


class ConsumerBusy(OttlaError):
    """A consumer is read by one thread at a time, and another thread, or a callback of this one, reads it now."""

    hint = "one consumer for each thread; callbacks do not poll"
