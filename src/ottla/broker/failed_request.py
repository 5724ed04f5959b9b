"""A request that met what nobody foresaw: its connection is closed, for nobody could go on behind an open answer."""

from __future__ import annotations

import logging

from ottla.broker.connection import Connection
from ottla.observe.events import fields
from ottla.storage.errors import lacks_descriptors

log = logging.getLogger(__name__)


def close_failed(connection: Connection, error: Exception, **facts: object) -> None:
    """Tell what happened and close.  Too few files are no bug, also for a handler's module that is only now read:
    that takes one line, and the client's next try may find some.
    """
    facts = {"peer": connection.peer_name, **facts}
    if lacks_descriptors(error):
        log.error("request.without_files", extra=fields(**facts, error=error))
        connection.close("no more files may be open")
        return
    log.error("request.failed", extra=fields(**facts), exc_info=error)
    connection.close("the request failed inside the broker")
