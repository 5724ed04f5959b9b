"""A request that failed unexpectedly: its connection is closed, since no later request could be answered in order."""

from __future__ import annotations

import logging

from ottla.broker.net.connection import Connection
from ottla.observe.events import frequent
from ottla.storage.errors import lacks_descriptors

log = logging.getLogger(__name__)


def close_failed(connection: Connection, error: Exception, **facts: object) -> None:
    """Log the failure and close.  Too few descriptors are no bug, also when a handler's module is first imported:
    one line is logged, and the client's next attempt may succeed.
    """
    facts = {"peer": connection.peer_name, **facts}
    if lacks_descriptors(error):
        log.error("request.without_files", extra=frequent(**facts, error=error))
        connection.close("no more files may be open")
        return
    log.error("request.failed", extra=frequent(**facts), exc_info=error)
    connection.close("the request failed inside the broker")
