"""Why a partition refuses an append, apart from what its log refuses (see storage/errors.py)."""

from __future__ import annotations

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError


class NotLeader(OttlaError):
    """This broker does not lead the partition."""

    error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class RestOfPipeline(NotLeader):
    """The batch does not follow its producer's last one, since one before it was refused: all of them come again."""


class NotEnoughReplicas(OttlaError):
    """Fewer replicas are in sync than `min.insync.replicas` requires; nothing was appended."""

    error_code = ErrorCode.NOT_ENOUGH_REPLICAS
