"""The options of one data source call, read one by one, so that unread ones are known to be unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.errors import BadAddress
from ottla.spark.errors import SparkOptionError

BOOTSTRAP_NAMES: Final = ("kafka.bootstrap.servers", "bootstrap.servers", "bootstrapServers")
# Spark's own options, which it passes to every source or sink.
SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "triggerinterval"})

# Options of the official connector that are not supported here: ignoring them would change what is read.
NOT_OFFERED: Final[Mapping[str, str]] = {
    "kafka.group.id": "use groupId, which also commits the offsets after each batch",
    "kafka.auto.offset.reset": "use startingOffsets; failOnDataLoss and onDataLoss are about lost records",
    "kafka.exclude.internal.topics": "internal topics can be named by subscribe",
    "kafka.group.instance.id": "Spark divides the partitions, no consumer joins a group",
    "kafka.group.protocol": "Spark divides the partitions, no consumer joins a group",
    "path": "topics are named by subscribe, subscribePattern or assign, or by the option topic when writing",
}
# Families of such options.
NOT_OFFERED_FAMILIES: Final[Mapping[str, str]] = {
    "kafka.metric.reporters": "classes of Java cannot be loaded here",
    "kafka.interceptor.classes": "classes of Java cannot be loaded here",
    "kafka.key.": "columns have their types: cast them",
    "kafka.value.": "columns have their types: cast them",
}
NUMBER_MAX: Final = 2**63 - 1
# How like a missing option an unknown one must be: not as 'kafka.ssl.truststore.location' is like an address's.
MISSPELT_AT_LEAST: Final = 0.85


# Spark gives the options of a table in a catalog twice, once with this prefix, and only when it creates the table.
_TABLE_PREFIX: Final = "option."


def refuse_table(options: Mapping[str, str]) -> None:
    """Raises `SparkOptionError` for the options of `CREATE TABLE ... USING ottla OPTIONS (...)`.

    Spark calls a Python source without any options when it reads such a table, so it could never be read.
    """
    names = {name.lower() for name in options}
    if any(f"{_TABLE_PREFIX}{name}" in names for name in names):
        raise SparkOptionError(
            "a topic cannot be a table of a catalog: Spark passes a Python source the table's options when it is "
            "created, and none when it is read",
            hint="a view keeps them: CREATE TEMPORARY VIEW name USING ottla OPTIONS (...)",
        )


class OptionReader:
    """Names are case-insensitive, as everywhere in Spark; errors show the documented spelling."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._documented: list[str] = []
        self._taken: set[str] = set()

    def text(self, name: str) -> str | None:
        self._documented.append(name)
        self._taken.add(name.lower())
        value = self._options.get(name.lower())
        return None if value is None else value.strip()

    def family(self, prefix: str) -> dict[str, str]:
        """The options whose names start so, which are in lower case here; values as they were given."""
        found = {name: value for name, value in self._options.items() if name.startswith(prefix)}
        self._taken.update(found)
        return found

    def one_of(self, names: Iterable[str]) -> tuple[str, str] | None:
        """The given one of these options, which exclude each other, and its value."""
        given = [(name, value) for name in names if (value := self.text(name)) is not None]
        if len(given) > 1:
            both = " and ".join(repr(name) for name, _ in given)
            raise SparkOptionError(f"the options {both} contradict each other", hint="give one of them")
        return given[0] if given else None

    def choice(self, name: str, choices: Mapping[str, str], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise SparkOptionError(f"the option {name!r} cannot be {value!r}", hint=f"use one of {', '.join(choices)}")
        return choices[value.lower()]

    def flag(self, name: str, default: bool) -> bool:
        choices = {"true": "true", "false": "false"}
        return self.choice(name, choices, "true" if default else "false") == "true"

    def number(self, name: str, *, at_least: int, at_most: int = NUMBER_MAX) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise SparkOptionError(f"the option {name!r} is {value!r}, which is not a whole number") from None
        if not at_least <= number <= at_most:
            raise SparkOptionError(f"the option {name!r} is {number}", hint=f"use {at_least} to {at_most}")
        return number

    def bootstrap(self) -> str:
        """Addresses of brokers: `host:port,host:port`."""
        given = self.one_of(BOOTSTRAP_NAMES)
        if given is None:
            self.refuse_misspelt(BOOTSTRAP_NAMES)
            raise SparkOptionError(f"the option {BOOTSTRAP_NAMES[0]!r} is missing", hint=BadAddress.hint)
        name, value = given
        try:
            parse_bootstrap(value)
        except BadAddress as error:
            raise SparkOptionError(f"the option {name!r}: {error}", hint=error.hint) from None
        return value

    def refuse_misspelt(self, missing: Iterable[str]) -> None:
        """Raises `SparkOptionError` for an option that is nearly one of those that are missing."""
        known = {name.lower(): name for name in missing}
        for name in sorted(self._options.keys() - self._taken):
            if nearest := difflib.get_close_matches(name, known, n=1, cutoff=MISSPELT_AT_LEAST):
                raise _unknown(name, f"did you mean {known[nearest[0]]!r}?")

    def without_effect(self, names: Iterable[str]) -> None:
        """Options that may be given, and change no result."""
        self._taken.update(name.lower() for name in names)

    def refuse_rest(self, not_offered: Mapping[str, str] = NOT_OFFERED) -> None:
        """Raises `SparkOptionError` for an option that no call above has read.

        `not_offered`: names in lower case, each with what to do instead.
        """
        for name in sorted(self._options):
            if name in self._taken or name in SPARKS_OWN:
                continue
            instead = not_offered.get(name) or next(
                (hint for family, hint in NOT_OFFERED_FAMILIES.items() if name.startswith(family)), None
            )
            if instead is not None:
                raise SparkOptionError(f"the option {name!r} is not offered by this source", hint=instead)
            known = {documented.lower(): documented for documented in self._documented}
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {known[nearest[0]]!r}?" if nearest else f"known: {', '.join(sorted(known.values()))}"
            raise _unknown(name, hint)


def _unknown(name: str, hint: str) -> SparkOptionError:
    return SparkOptionError(f"the option {name!r} is unknown here", hint=hint)
