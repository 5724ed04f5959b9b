"""The options of TLS and SASL: Kafka's names after `kafka.`, a `client.properties` file, environment variables.

They become settings in each process that connects, since the driver and every executor have their own files and their
own environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.errors import ConfigError
from ottla.security.secret import Secret
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.option_reader import OptionReader

_KAFKA: Final = "kafka."
# Settings of clients that are about security start so.
_FAMILIES: Final = tuple(
    _KAFKA + family for family in ("security.", "sasl.", "ssl.", "https.", "aws.", "enable.ssl.", "enable.sasl.")
)
# The values of settings whose names end so are paths.
_PATHS: Final = (".location", ".file")
_VARIABLES: Final = "OTTLA_"


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Pickles with its secrets; none of its text forms shows one.

    given              by Kafka's names, without `kafka.`
    properties_file    its settings count where `given` has none, and environment variables where the file has none
    """

    given: Mapping[str, Secret] = field(default_factory=dict)
    properties_file: str | None = None

    def settings(self, environment: Mapping[str, str] | None = None) -> ClientSecurity:
        """In this process: relative paths are also looked up among the files that Spark has shipped.

        `environment`: of this process, unless given.  Raises ConfigError.
        """
        environment = os.environ if environment is None else environment
        if not (self.given or self.properties_file or any(name.startswith(_VARIABLES) for name in environment)):
            return PLAINTEXT
        # Imported late: a connection without security needs none of it.
        from ottla.client.wire.security.names import read_client_properties, security_of_properties

        properties: dict[str, str] = {}
        if self.properties_file is not None:
            properties.update(read_client_properties(Path(_local_path(self.properties_file))))
        properties.update((name, secret.reveal()) for name, secret in self.given.items())
        return security_of_properties(dict(_localized(properties)), environment)


def parse_security(reader: OptionReader) -> SecurityOptions:
    """Raises `SparkOptionError`, which shows no value of an option."""
    given = {
        name.removeprefix(_KAFKA): Secret(value)
        for family in _FAMILIES
        for name, value in reader.family(family).items()
    }
    options = SecurityOptions(given, reader.text("clientPropertiesFile") or None)
    try:
        options.settings()
    except ConfigError as error:
        raise SparkOptionError(f"in the options {_KAFKA}* of security: {error}", hint=error.hint) from None
    return options


def _localized(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, text in properties.items():
        yield name, _local_path(text) if name.endswith(_PATHS) and text.strip() else text


def _local_path(path: str) -> str:
    """A relative path that is not here may be of a file that Spark has shipped: `--files`, `addFile`."""
    path = path.strip()
    if os.path.isabs(path) or os.path.exists(path):
        return path
    try:
        shipped = SparkFiles.get(path)
    except (AssertionError, AttributeError):  # no Spark in this process
        return path
    return shipped if os.path.exists(shipped) else path
