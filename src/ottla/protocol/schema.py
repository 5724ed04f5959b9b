"""The notation of message classes: a dataclass whose fields, in wire order, declare their types and versions.

    @message
    class ListOffsetsPartition:
        partition_index: int = int32()
        current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
        timestamp: int = int64()

One class covers all versions, as in Apache Kafka's own message definitions: reading a version that lacks a field gives
the field's default; writing one leaves the field out, and refuses in a request when the field was set and is not
`ignorable`.  Tagged fields (KIP-482) come last in the class, in any order of their tags.  `message_class` makes the
class, `reader` and `writer` compile the codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar
from uuid import UUID

T = TypeVar("T")

ZERO_UUID: Final = UUID(int=0)
METADATA_KEY: Final = "wire"


class Kind(Enum):
    """The type of a field on the wire; the value of a fixed-size one is its `struct` format."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    BOOLEAN = "?"
    UUID = "uuid"
    STRING = "string"
    OPAQUE = "opaque"
    RECORDS = "records"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class Versions:
    """`"3+"`, `"0-5"`, `"none"`: an inclusive range, open above when `highest` is None."""

    lowest: int
    highest: int | None

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version and (self.highest is None or version <= self.highest)


@dataclass(frozen=True, slots=True)
class WireField:
    """The declaration of one field for the codec."""

    kind: Kind
    versions: Versions
    nullable: Versions
    is_array: bool = False
    struct_class: type | None = None
    tag: int | None = None
    ignorable: bool = False


def _declare(
    default: T,
    kind: Kind,
    versions: str,
    *,
    nullable: str = "none",
    is_array: bool = False,
    struct_class: type | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    factory: Callable[[], T] | None = None,
) -> T:
    wire = WireField(kind, Versions.parse(versions), Versions.parse(nullable), is_array, struct_class, tag, ignorable)
    # To dataclasses this is the Field object; to a type checker it is the field's default value.
    if factory is not None:
        return field(default_factory=factory, metadata={METADATA_KEY: wire})
    return field(default=default, metadata={METADATA_KEY: wire})


def int8(versions: str = "0+", *, default: int = 0, ignorable: bool = False) -> int:
    return _declare(default, Kind.INT8, versions, ignorable=ignorable)


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return _declare(default, Kind.INT16, versions, tag=tag, ignorable=ignorable)


def int32(versions: str = "0+", *, default: int = 0, ignorable: bool = False) -> int:
    return _declare(default, Kind.INT32, versions, ignorable=ignorable)


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> int:
    return _declare(default, Kind.INT64, versions, tag=tag, ignorable=ignorable)


def float64(versions: str = "0+") -> float:
    return _declare(0.0, Kind.FLOAT64, versions)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> bool:
    return _declare(default, Kind.BOOLEAN, versions, tag=tag, ignorable=ignorable)


def uuid(versions: str = "0+", *, tag: int | None = None, ignorable: bool = False) -> UUID:
    """No id is all zeros (`ZERO_UUID`)."""
    return _declare(ZERO_UUID, Kind.UUID, versions, tag=tag, ignorable=ignorable)


def string(versions: str = "0+", *, default: str = "", ignorable: bool = False) -> str:
    return _declare(default, Kind.STRING, versions, ignorable=ignorable)


def nullable_string(
    versions: str = "0+",
    *,
    nullable: str = "0+",
    default: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None:
    return _declare(default, Kind.STRING, versions, nullable=nullable, tag=tag, ignorable=ignorable)


def opaque(versions: str = "0+") -> bytes:
    """Bytes that only clients interpret: reading copies them, so they may outlive the message."""
    return _declare(b"", Kind.OPAQUE, versions)


def records(versions: str = "0+") -> memoryview | bytes | bytearray | None:
    """Record batches in place: reading returns a view of the message's buffer."""
    return _declare(None, Kind.RECORDS, versions, nullable="0+")


def int8_array(versions: str = "0+") -> list[int]:
    return _declare([], Kind.INT8, versions, is_array=True, factory=list)


def nullable_int32_array(versions: str = "0+") -> list[int] | None:
    return _declare(None, Kind.INT32, versions, nullable="0+", is_array=True)


def int32_array(versions: str = "0+") -> list[int]:
    return _declare([], Kind.INT32, versions, is_array=True, factory=list)


def int64_array(versions: str = "0+") -> list[int]:
    return _declare([], Kind.INT64, versions, is_array=True, factory=list)


def string_array(versions: str = "0+", *, ignorable: bool = False) -> list[str]:
    return _declare([], Kind.STRING, versions, is_array=True, ignorable=ignorable, factory=list)


def nullable_string_array(versions: str = "0+", *, nullable: str = "0+") -> list[str] | None:
    return _declare(None, Kind.STRING, versions, nullable=nullable, is_array=True)


def array(struct_class: type[T], versions: str = "0+", *, tag: int | None = None, ignorable: bool = False) -> list[T]:
    return _declare(
        [],
        Kind.STRUCT,
        versions,
        is_array=True,
        struct_class=struct_class,
        tag=tag,
        ignorable=ignorable,
        factory=list,
    )


def nullable_array(struct_class: type[T], versions: str = "0+", *, nullable: str = "0+") -> list[T] | None:
    return _declare(None, Kind.STRUCT, versions, nullable=nullable, is_array=True, struct_class=struct_class)


def struct(struct_class: type[T], versions: str = "0+", *, tag: int | None = None) -> T:
    """A structure; its default is the structure of defaults."""
    return _declare(struct_class(), Kind.STRUCT, versions, struct_class=struct_class, tag=tag, factory=struct_class)


def nullable_struct(struct_class: type[T], versions: str = "0+") -> T | None:
    """A structure after a presence byte: 1, or -1 for None."""
    return _declare(None, Kind.STRUCT, versions, nullable="0+", struct_class=struct_class)
