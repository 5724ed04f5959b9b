"""What a user gave to `send`, as bytes with sizes and partitions.

The messages of one `send` are looked at as a whole: what cannot be sent is refused before anything is taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.producing.accumulator import Run
from ottla.client.producing.errors import MessageRefused, MessageTooLarge
from ottla.client.producing.partitioner import partition_of_key, partitions_of_keys
from ottla.client.producing.settings import ProducerSettings, Serializer
from ottla.client.wire.errors import UnknownTopic
from ottla.model.identifiers import topic_name_problem
from ottla.records.builder import record_size_bytes_max
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import INT64_LIMIT, Headers

HeadersLike: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class SerializedMessages(NamedTuple):
    """Messages of one `send`.  Each takes `alike_bytes` and its key and value, at most; all take `total_bytes`."""

    topic: str
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Headers
    partition: int | None
    timestamp_ms: int
    alike_bytes: int
    total_bytes: int

    @property
    def has_keys(self) -> bool:
        return self.keys.count(None) != len(self.keys)


class MessageSerializer:
    """The rules of one producer.  `now_ms` is the wall clock, `choose` takes one by chance."""

    def __init__(
        self, settings: ProducerSettings, now_ms: Callable[[], int], choose: Callable[[Sequence[int]], int]
    ) -> None:
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        self._partitioner = settings.partitioner
        self._max_request_bytes = settings.max_request_bytes
        self._now_ms = now_ms
        self._choose = choose

    def message(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
    ) -> SerializedMessages:
        serialized = to_bytes(key, self._key_serializer, "key")
        return self._serialized(topic, [value], [serialized], partition, headers, timestamp_ms)

    def messages(
        self,
        topic: str,
        values: Iterable[object],
        key: object,
        keys: Iterable[object] | None,
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
    ) -> SerializedMessages:
        every = list(values)
        if keys is None:
            serialized = to_bytes(key, self._key_serializer, "key")
            return self._serialized(topic, every, [serialized] * len(every), partition, headers, timestamp_ms)
        if key is not None:
            raise MessageRefused("a set has one key for all, or keys for each, not both")
        each = list(keys)
        if len(each) != len(every):
            raise MessageRefused(f"{len(every)} messages have {len(each)} keys; keys has one for each (or None)")
        serialized_keys = _all_to_bytes(each, self._key_serializer, "key")
        return self._serialized(topic, every, serialized_keys, partition, headers, timestamp_ms)

    def partition(self, key: bytes, partitions_count: int) -> int:
        """The partition of a key."""
        if self._partitioner is None:
            return partition_of_key(key, partitions_count)
        try:
            found = self._partitioner(key, partitions_count)
        except Exception as error:
            raise MessageRefused(f"the partitioner failed for key {key!r}: {error!r}") from error
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < partitions_count:
            raise MessageRefused(
                f"the partitioner gave {found!r} for key {key!r}", hint=f"partitions are 0 to {partitions_count - 1}"
            )
        return found

    def runs(self, messages: SerializedMessages, partitions_count: int | None) -> Sequence[Run]:
        """A set by partition; the count is needed when there are keys and no partition."""
        _, values, keys, _, partition, _, alike_bytes, total_bytes = messages
        if not values:
            return ()
        positions: Sequence[int] = range(len(values))
        if partition is None and messages.has_keys:
            assert partitions_count is not None, "keys need the topic's partitions"
            first = keys[0]
            if first is None or keys.count(first) != len(keys):
                return list(self._by_partition(messages, partitions_count))
            partition = self.partition(first, partitions_count)
        return [Run(partition, positions, values, keys, alike_bytes, total_bytes)]

    def _by_partition(self, messages: SerializedMessages, partitions_count: int) -> Iterable[Run]:
        keys = messages.keys
        # Those without a key stay together, and in order with those whose key leads there.
        keyless = self._choose(range(partitions_count))
        if self._partitioner is None and None not in keys:
            numbers = partitions_of_keys([key or b"" for key in keys], partitions_count)
        else:
            numbers = [keyless if key is None else self.partition(key, partitions_count) for key in keys]
        found: defaultdict[int, list[int]] = defaultdict(list)
        for position, number in enumerate(numbers):
            found[number].append(position)
        for partition, at in found.items():
            mine = [messages.values[each] for each in at]
            my_keys = [keys[each] for each in at]
            total_bytes = len(at) * messages.alike_bytes + sum(_lengths(mine)) + sum(_lengths(my_keys))
            yield Run(partition, at, mine, my_keys, messages.alike_bytes, total_bytes)

    def _serialized(
        self,
        topic: str,
        values: Sequence[object],
        keys: Sequence[bytes | None],
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
    ) -> SerializedMessages:
        if not isinstance(topic, str) or (problem := topic_name_problem(topic)) is not None:
            why = "the topic is no str" if not isinstance(topic, str) else problem
            raise UnknownTopic(str(why), hint="topic names have 1 to 249 ASCII letters, digits, '.', '_' and '-'")
        if partition is not None and (
            isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition <= _PARTITION_MAX
        ):
            raise MessageRefused(f"partition {partition!r} is no number of a partition")
        plain = _all_to_bytes(values, self._value_serializer, "value")
        made = to_headers(headers)
        stamp_ms = self._now_ms() if timestamp_ms is None else check_timestamp(timestamp_ms)
        alike_bytes = record_size_bytes_max(None, None, made)
        lengths, key_lengths = _lengths(plain), _lengths(keys)
        room_bytes = self._max_request_bytes - BATCH_OVERHEAD_BYTES - alike_bytes
        if max(lengths, default=0) + max(key_lengths, default=0) > room_bytes:
            self._check_sizes(lengths, key_lengths, room_bytes)
        total_bytes = len(plain) * alike_bytes + sum(lengths) + sum(key_lengths)
        return SerializedMessages(topic, plain, keys, made, partition, stamp_ms, alike_bytes, total_bytes)

    def _check_sizes(self, values: Sequence[int], keys: Sequence[int], room_bytes: int) -> None:
        """Raise MessageTooLarge for the first that has no room."""
        for at, (value_bytes, key_bytes) in enumerate(zip(values, keys, strict=True)):
            if value_bytes + key_bytes > room_bytes:
                which = f"message {at} of the set" if len(values) > 1 else "the message"
                size_bytes = value_bytes + key_bytes + self._max_request_bytes - room_bytes
                raise MessageTooLarge(
                    f"{which} may take {size_bytes:,} bytes, max_request_bytes is {self._max_request_bytes:,}"
                )


def _lengths(contents: Sequence[bytes | None]) -> Sequence[int]:
    if contents.count(None) == len(contents):
        return [0] * len(contents)
    try:
        return list(map(len, contents))  # type: ignore[arg-type]  # a null raises, and is rare
    except TypeError:
        return [0 if content is None else len(content) for content in contents]


def _all_to_bytes(contents: Sequence[Any], serializer: Serializer | None, what: str) -> Sequence[bytes | None]:
    if serializer is None and set(map(type, contents)) <= _BYTES_OR_NONE:
        return contents
    return [to_bytes(content, serializer, what) for content in contents]


_BYTES_OR_NONE: Final = frozenset({bytes, type(None)})
_PARTITION_MAX: Final = (1 << 31) - 1


# What is a set of messages, and no message.  Other iterables may well be values of a serializer.
_SETS: Final = (list, tuple, deque, Iterator, Set, KeysView, ValuesView)


def is_set(messages: object) -> bool:
    """Whether it is a set of messages: a list, a tuple (no named one), an iterator, ...; else it is one message."""
    return isinstance(messages, _SETS) and not hasattr(messages, "_fields")


def to_bytes(content: object, serializer: Serializer | None, what: str) -> bytes | None:
    """`content` by the serializer; without one it has to be bytes.  None stays None.  `what`: key or value."""
    if content is None:
        return None
    if serializer is not None:
        try:
            content = serializer(content)
        except Exception as error:
            raise MessageRefused(f"the {what} {_shown(content)} cannot be serialized: {error!r}") from error
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    made = "the serializer gave" if serializer is not None else "it is"
    hint = f"{what}_serializer=str.encode sends text as UTF-8" if isinstance(content, str) else _HINT.format(what)
    raise MessageRefused(f"a {what} is bytes or None, {made} {type(content).__name__}", hint=hint)


def to_headers(headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None) -> Headers:
    """As records have them; a mapping's items, or pairs of which a name may occur twice."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    made: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise MessageRefused(f"a header is a pair of name and content, not {_shown(pair)}")
        name, content = pair
        if not isinstance(name, str):
            raise MessageRefused(f"the name of a header is a str, not {type(name).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise MessageRefused(f"the header's name {name!r} is no Unicode text: {error.reason}") from None
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            raise MessageRefused(
                f"the content of header {name!r} is bytes or None, not {type(content).__name__}",
                hint=f'encode it: ({name!r}, "...".encode())' if isinstance(content, str) else None,
            )
        made.append((name, None if content is None else bytes(content)))
    return tuple(made)


def check_timestamp(timestamp_ms: object) -> int:
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < INT64_LIMIT:
        raise MessageRefused(
            f"timestamp_ms {_shown(timestamp_ms)} is no time", hint="it is an int: milliseconds since 1970"
        )
    return timestamp_ms


_HINT: Final = "give the producer a {}_serializer: a callable that makes bytes of it"
_SHOWN_MAX: Final = 80


def _shown(content: object) -> str:
    text = repr(content)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
