"""`ottla consume --filter`: records by regular expressions on their key, value or headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ottla.records.record import Record

_HEADER: Final = "header."


def record_filter(texts: Sequence[str]) -> Callable[[Record], bool] | None:
    """Whether a record has all of `key=REGEX`, `value=REGEX`, `header.NAME=REGEX`; None without any.

    A pattern of Python's `re` may match anywhere; null has no match.  Raises UsageError.
    """
    checks = [_check(text) for text in texts]
    if not checks:
        return None
    return lambda record: all(check(record) for check in checks)


def _check(text: str) -> Callable[[Record], bool]:
    part, equal_sign, expression = text.partition("=")
    try:
        pattern = re.compile(expression.encode())
    except re.error as error:
        raise click.UsageError(f"--filter {text!r}: {error}.") from None
    if equal_sign and part == "key":
        return lambda record: record.key is not None and pattern.search(record.key) is not None
    if equal_sign and part == "value":
        return lambda record: record.value is not None and pattern.search(record.value) is not None
    name = part.removeprefix(_HEADER)
    if equal_sign and name and name != part:
        return lambda record: any(
            each == name and content is not None and pattern.search(content) is not None
            for each, content in record.headers
        )
    raise click.UsageError(f"--filter takes key=REGEX, value=REGEX or header.NAME=REGEX, not {text!r}.")
