"""Whether a broker may take the logs that a creation would give it.  Pure.

What it takes must also fit at its next start, beside the connections of those who use it (`LogsRoom.logs_max`).  Topics
that nobody asked for but by their names leave a part of the room to those that somebody does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.model.broker_settings import MAX_BROKER_PARTITIONS
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId

# Of the room, one of so many: `__consumer_offsets` and what operators make must fit when clients have filled the rest.
_AUTOMATIC_LEAVES: Final = 4


class CreationRoom:
    """The bounds of one broker's partitions."""

    def __init__(self, node_id: NodeId, partitions_max: int, files_logs_max: int | None) -> None:
        """`files_logs_max`: how many logs the limit of open files allows; None: any number."""
        self._node_id = node_id
        self._is_by_files = files_logs_max is not None and files_logs_max < partitions_max
        self._partitions_max = partitions_max if files_logs_max is None else min(partitions_max, files_logs_max)

    def require(self, name: str, added: Sequence[Sequence[NodeId]], present_count: int, *, is_automatic: bool) -> None:
        """Raises `RequestError` (POLICY_VIOLATION) unless the partitions with these replicas have room here.

        `present_count`: the partitions that the broker has.  Other brokers' limits are not known here.
        """
        here_count = sum(self._node_id in replicas for replicas in added)
        allowed = self._partitions_max
        if is_automatic:
            allowed -= allowed // _AUTOMATIC_LEAVES
        if not here_count or present_count + here_count <= allowed:
            return
        how = "automatically " if is_automatic else ""
        problem = (
            f"topic {name!r} would give broker {self._node_id} {counted(here_count, 'partition')} more: "
            f"it has {present_count}, and {max(allowed, 0)} may be made {how}({self._bound})"
        )
        raise RequestError(ErrorCode.POLICY_VIOLATION, problem, hint=self._hint)

    @property
    def _bound(self) -> str:
        return "the limit of open files" if self._is_by_files else MAX_BROKER_PARTITIONS.name

    @property
    def _hint(self) -> str:
        if self._is_by_files:
            return "raise the broker's limit of open files (ulimit -Hn, LimitNOFILE=) and restart it, or delete topics"
        return f"raise {MAX_BROKER_PARTITIONS.name}, or delete topics"
