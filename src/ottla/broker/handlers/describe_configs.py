"""DescribeConfigs (key 32), v1-v4.

Topics (type 2): every topic setting with its value in force, its source (the topic's own, the broker's, the default)
and, when asked for, its synonyms and documentation.  This broker (type 4, its node id): every broker setting, those
that are read at its start as read-only.  All brokers (type 4, empty name): what was set for all of them at run time.
Keys that are asked for and unknown are left out; an empty list of keys asks for all, as null does.
A resource that is named several times is answered once, with the keys of all its places.  Resources beyond
`COLD_ANSWER_BYTES_MAX` of the answer are INVALID_REQUEST.
A group (type 32, there or not): the settings of consumer groups.  UNKNOWN_TOPIC_OR_PARTITION for an unknown topic,
INVALID_TOPIC_EXCEPTION for an illegal name, INVALID_REQUEST for another broker's id, for a group without an id and for
other types.
Not done: broker loggers (type 8), client metrics (16).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.config_resources import (
    ResourceType,
    is_every_broker,
    require_group_name,
    require_topic,
    unknown_type,
)
from ottla.broker.handlers.error_text import error_text
from ottla.broker.net.limits import COLD_ANSWER_BYTES_MAX, MIB
from ottla.coordination.configs import ConfigEntity
from ottla.model.config_entries import (
    ConfigEntry,
    describe_broker,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.runtime.loop_offload import LoopOffload

# Lengths, flags and types of an entry or a synonym.
_FIXED_BYTES: Final = 16
# For refusals of the resources beyond.
_MARGIN_BYTES: Final = 32 * MIB


async def handle(request: DescribeConfigsRequest, context: BrokerContext, call: Call) -> DescribeConfigsResponse:
    turn = LoopOffload()
    wanted: dict[tuple[int, str], set[str]] = {}
    for resource in request.resources:
        known = wanted.get(key := (resource.resource_type, resource.resource_name))
        keys = resource.configuration_keys
        if known is None:
            wanted[key] = known = set()
        elif not known or not keys:
            # No keys are all keys, at one of its places.
            known.clear()
            continue
        for name in keys or ():
            known.add(name)
            await turn.pause()
        await turn.pause()
    results: list[DescribeConfigsResult] = []
    described = _Described(request)
    for (resource_type, name), keys_of_it in wanted.items():
        results.append(_result(resource_type, name, keys_of_it, described, context))
        await turn.pause()
    return DescribeConfigsResponse(results=results)


class _Described:
    """The entries of one answer: equal ones are one object, since thousands of topics differ in few settings."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        self._results: dict[ConfigEntry, tuple[DescribeConfigsResourceResult, int]] = {}
        self._left_bytes = COLD_ANSWER_BYTES_MAX - _MARGIN_BYTES

    def of(self, entries: Iterable[ConfigEntry]) -> list[DescribeConfigsResourceResult]:
        """Raises `RequestError` when the answer has no room for them."""
        found: list[DescribeConfigsResourceResult] = []
        for entry in entries:
            known = self._results.get(entry)
            if known is None:
                result = _entry_result(entry, self._request)
                known = self._results[entry] = result, _size_bytes(result)
            found.append(known[0])
            self._left_bytes -= known[1]
        if self._left_bytes < 0:
            problem = f"the answer has more than {COLD_ANSWER_BYTES_MAX} bytes: ask for fewer at a time"
            raise RequestError(ErrorCode.INVALID_REQUEST, problem)
        return found


def _result(
    resource_type: int, name: str, wanted: set[str], described: _Described, context: BrokerContext
) -> DescribeConfigsResult:
    # As in Apache Kafka the message is empty, not null, on success.
    result = DescribeConfigsResult(ErrorCode.NONE, "", resource_type, name)
    try:
        entries = _entries(resource_type, name, context)
        result.configs = described.of(entry for entry in entries if not wanted or entry.name in wanted)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error_text(error)
    return result


def _size_bytes(result: DescribeConfigsResourceResult) -> int:
    """At most what it takes on the wire, but for texts beyond ASCII."""
    texts = [result.name, result.value or "", result.documentation or ""]
    texts += [text or "" for synonym in result.synonyms for text in (synonym.name, synonym.value)]
    return sum(map(len, texts)) + _FIXED_BYTES * (1 + len(result.synonyms))


def _entries(resource_type: int, name: str, context: BrokerContext) -> list[ConfigEntry]:
    if resource_type == ResourceType.TOPIC:
        require_topic(context, name)
        return describe_topic(context.configs.topic(name), context.settings)
    if resource_type == ResourceType.BROKER:
        of_all = context.configs.of(ConfigEntity.broker(None))
        if is_every_broker(context, name):
            return describe_every_broker(of_all)
        return describe_broker(context.settings, context.configs.of(ConfigEntity.broker(context.node_id)), of_all)
    if resource_type == ResourceType.GROUP:
        require_group_name(name)
        return describe_group(context.configs.of(ConfigEntity.group(name)), context.settings)
    raise unknown_type(resource_type)


def _entry_result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.is_read_only,
        entry.source,
        entry.is_sensitive,
        [DescribeConfigsSynonym(*synonym) for synonym in synonyms],
        entry.type,
        entry.about if request.include_documentation else None,
    )
