"""The topic of a coordinator is created when a client first needs it."""

from __future__ import annotations

from ottla.broker.context import BrokerContext
from ottla.broker.shards.internal_topics import internal_topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError


async def create_internal_topic(context: BrokerContext, name: str) -> None:
    """Create it if it does not exist.  Raises `OttlaError`."""
    if name in context.topics.by_name:
        return
    try:
        await context.topic_admin.create(internal_topic(name, context.settings, is_sole=context.is_sole))
    except RequestError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another request was faster
            raise
