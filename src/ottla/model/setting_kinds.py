"""Short constructors for the tables of settings, one for each type of value."""

from __future__ import annotations

from ottla.model.setting import Setting, ValueType


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
