"""Logs a join that is inconsistent with the group's members: the client itself reports little of the reason."""

from __future__ import annotations

import logging
from typing import Final

from ottla.broker.context import Call
from ottla.model.error_code import ErrorCode
from ottla.observe.events import frequent

log = logging.getLogger(__name__)

_OTHER_MEMBERS: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members use group.protocol=consumer, or no assignor of this client",
    ErrorCode.GROUP_ID_NOT_FOUND: "the members use group.protocol=classic",
}


def note_refused_join(group_id: str, call: Call, error: ErrorCode) -> None:
    """At most one line for each refused join; clients do not repeat such a join automatically."""
    reason = _OTHER_MEMBERS.get(error)
    if reason is not None:
        facts = {"group": group_id, "client_id": call.client_id, "host": call.client_host}
        log.info("group.join_refused", extra=frequent(**facts, error=error.name, reason=reason))
