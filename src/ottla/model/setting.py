"""A setting as an object: Kafka's name, type, default, bounds and meaning.

Values are typed: `settings[LOG_SEGMENT_BYTES]` is an `int` for mypy too.  `parse` reads text, `format` writes it for
DescribeConfigs and the generated documentation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, TypeVar, cast

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from ottla.model.nearest import nearest_name

SettingValue = bool | int | float | str | tuple[str, ...] | None
T_co = TypeVar("T_co", bound=SettingValue, covariant=True)

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}\Z", re.ASCII)


class ValueType(IntEnum):
    """The type of a value; the numbers are DescribeConfigs' own `config_type` (v3+)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE_RANGE: Final = {
    ValueType.INT: (INT32_MIN, INT32_MAX),
    ValueType.SHORT: (-(2**15), 2**15 - 1),
    ValueType.LONG: (INT64_MIN, INT64_MAX),
}


class Source(IntEnum):
    """The source of a value in force; the numbers are DescribeConfigs' own `config_source` (v1+)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T_co]):
    """One setting.  `minimum` and `maximum` are inclusive; `choices` are the only words (or list elements) allowed.

    `honoured`: it changes what the broker does; the others are only stored and shown to admin tools.
    `aliases` are older names of the same thing, used when the name itself is not given.
    """

    name: str
    type: ValueType
    default: T_co
    about: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    honoured: bool = True
    aliases: tuple[str, ...] = ()

    def parse(self, text: str) -> T_co:
        """The value of `text`.  Raises `ConfigError`, whose hint lists accepted values."""
        value = self._read(text.strip())
        problem = self._problem(value)
        if problem is not None:
            raise self._refuse(text, problem)
        return cast("T_co", value)

    def format(self, value: SettingValue) -> str | None:
        """A value as Kafka's tools show it; None is an unset value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    @property
    def is_sensitive(self) -> bool:
        return self.type is ValueType.PASSWORD

    def expected(self) -> str:
        """The accepted values, as a phrase for a hint: `a whole number from 14 to 2147483647`."""
        if self.type is ValueType.BOOLEAN:
            return f"only {self.choices[0]}" if self.choices else "true or false"
        if self.type is ValueType.LIST:
            return f"a comma-separated list of {', '.join(self.choices)}" if self.choices else "a comma-separated list"
        if self.type in _WHOLE_RANGE or self.type is ValueType.DOUBLE:
            return self._expected_number()
        return f"one of {', '.join(self.choices)}" if self.choices else "text"

    def _expected_number(self) -> str:
        kind = "a number" if self.type is ValueType.DOUBLE else "a whole number"
        low, high = _WHOLE_RANGE.get(self.type, (None, None))
        low = low if self.minimum is None else self.minimum  # type: ignore[assignment]
        high = high if self.maximum is None else self.maximum  # type: ignore[assignment]
        return kind + (f" from {low}" if low is not None else "") + (f" to {high}" if high is not None else "")

    def _read(self, text: str) -> SettingValue:
        if self.type is ValueType.BOOLEAN:
            lowered = text.lower()
            if lowered not in {"true", "false"}:
                raise self._refuse(text, "is neither true nor false")
            return lowered == "true"
        if self.type in _WHOLE_RANGE:
            if _WHOLE_NUMBER.match(text) is None:
                raise self._refuse(text, "is not a whole number")
            return int(text)
        if self.type is ValueType.DOUBLE:
            return self._read_number(text)
        if self.type is ValueType.LIST:
            return tuple(part.strip() for part in text.split(",")) if text else ()
        return text

    def _read_number(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._refuse(text, "is not a number")
        return number

    def _problem(self, value: SettingValue) -> str | None:
        if isinstance(value, bool):
            return "is not offered" if self.choices and self.format(value) not in self.choices else None
        if isinstance(value, (int, float)):
            return self._bounds_problem(value)
        words = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) and len(set(words)) != len(words):
            return "names an element twice"
        unknown = [word for word in words if self.choices and word not in self.choices]
        if unknown:
            return "is not accepted" if len(words) == 1 else f"has the unknown element {unknown[0]!r}"
        return None

    def _bounds_problem(self, value: float) -> str | None:
        low, high = _WHOLE_RANGE.get(self.type, (-math.inf, math.inf))
        if value < low or value > high:
            return f"does not fit {self.type.name.lower()}"
        if self.minimum is not None and value < self.minimum:
            return "is too small"
        if self.maximum is not None and value > self.maximum:
            return "is too large"
        return None

    def _refuse(self, text: str, problem: str) -> ConfigError:
        shown = "the value" if self.is_sensitive else repr(text if len(text) <= 80 else text[:80] + "...")
        default = self.format(self.default)
        ending = "" if default is None else f"; the default is {default}"
        return ConfigError(f"{self.name}: {shown} {problem}", hint=f"{self.name} takes {self.expected()}{ending}")


AnySetting = Setting[SettingValue]
S = TypeVar("S", bound=AnySetting)


def setting_named(name: str, known: Mapping[str, S], owner: str) -> S:
    """The setting of this name among those that `owner` has.  Raises `ConfigError` that names the nearest."""
    setting = known.get(name)
    if setting is None:
        nearest = nearest_name(name, known)
        hint = "docs/configuration.md lists them" if nearest is None else f"did you mean {nearest}?"
        raise ConfigError(f"{name} is not a setting of {owner}", hint=hint)
    return setting


def int32(
    name: str,
    default: int,
    about: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    honoured: bool = True,
    aliases: tuple[str, ...] = (),
) -> Setting[int]:
    return Setting(
        name=name,
        type=ValueType.INT,
        default=default,
        about=about,
        minimum=minimum,
        maximum=maximum,
        honoured=honoured,
        aliases=aliases,
    )


def int64(name: str, default: int, about: str, *, minimum: int | None = None, honoured: bool = True) -> Setting[int]:
    return Setting(name=name, type=ValueType.LONG, default=default, about=about, minimum=minimum, honoured=honoured)


def optional_password(name: str, about: str) -> Setting[str | None]:
    return Setting(name=name, type=ValueType.PASSWORD, default=None, about=about)


def optional_int32(name: str, about: str, *, minimum: int | None = None) -> Setting[int | None]:
    return Setting(name=name, type=ValueType.INT, default=None, about=about, minimum=minimum)


def optional_int64(name: str, about: str, *, minimum: int | None = None) -> Setting[int | None]:
    return Setting(name=name, type=ValueType.LONG, default=None, about=about, minimum=minimum)


def number(
    name: str, default: float, about: str, *, minimum: float, maximum: float | None = None, honoured: bool = True
) -> Setting[float]:
    return Setting(
        name=name,
        type=ValueType.DOUBLE,
        default=default,
        about=about,
        minimum=minimum,
        maximum=maximum,
        honoured=honoured,
    )


def flag(
    name: str, default: bool, about: str, *, honoured: bool = True, choices: tuple[str, ...] = ()
) -> Setting[bool]:
    return Setting(name=name, type=ValueType.BOOLEAN, default=default, about=about, honoured=honoured, choices=choices)


def word(name: str, default: str, about: str, *, choices: tuple[str, ...] = (), honoured: bool = True) -> Setting[str]:
    return Setting(name=name, type=ValueType.STRING, default=default, about=about, choices=choices, honoured=honoured)


def optional_text(name: str, about: str, *, aliases: tuple[str, ...] = ()) -> Setting[str | None]:
    return Setting(name=name, type=ValueType.STRING, default=None, about=about, aliases=aliases)


def words(
    name: str, default: tuple[str, ...], about: str, *, choices: tuple[str, ...] = (), honoured: bool = True
) -> Setting[tuple[str, ...]]:
    return Setting(name=name, type=ValueType.LIST, default=default, about=about, choices=choices, honoured=honoured)
