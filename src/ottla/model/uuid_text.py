"""Topic ids, cluster ids and directory ids as Kafka writes them: 16 bytes in 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from uuid import UUID

UUID_TEXT_LENGTH: Final = 22

# Kafka reserves the smallest ids: zero means "no id", one names the metadata topic of KRaft (KIP-516, KIP-500).
RESERVED_UUIDS: Final = frozenset(UUID(int=value) for value in range(100))


def uuid_to_text(value: UUID) -> str:
    """The id in Kafka's 22 characters, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The id of a text by `uuid_to_text`; raises `ValueError` for anything else."""
    if len(text) != UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} has {len(text)} characters, an id has {UUID_TEXT_LENGTH}")
    try:
        value = UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error
    if uuid_to_text(value) != text:
        raise ValueError(f"{text!r} has bits beyond the 16 bytes of an id")
    return value
