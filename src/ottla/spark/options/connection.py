"""The options of a connection to a cluster and of its security, of the driver and of executors alike.

Security is given by Kafka's names after `kafka.`, a `client.properties` file, or environment variables.  They become
settings in each process that connects, since the driver and every executor have their own files and environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.errors import ConfigError
from ottla.security.secret import Secret
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.option_reader import BOOTSTRAP_NAMES, OptionReader

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
        from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties

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


CLIENT_ID_DEFAULT: Final = "ottla-spark"
REQUEST_TIMEOUT_MS_DEFAULT: Final = 30_000
CALL_TIMEOUT_MS_DEFAULT: Final = 60_000
TIMEOUT_MS_MIN: Final = 100
TIMEOUT_MS_MAX: Final = 3_600_000
_DEFAULTS: Final = ClientOptions()

# Kafka's settings for sockets and metrics: accepted, since no result depends on them.
COMMON_WITHOUT_EFFECT: Final = frozenset(
    {
        "kafka.auto.include.jmx.reporter",
        "kafka.client.dns.lookup",
        "kafka.enable.metrics.push",
        "kafka.metadata.recovery.rebootstrap.trigger.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.socket.connection.setup.timeout.max.ms",
    }
)


@dataclass(frozen=True, slots=True)
class Connection:
    """Times in ms.

    `call_timeout_ms`: a broker that is down, or from which nothing comes, is an error after this time.
    """

    bootstrap: str
    request_timeout_ms: int = REQUEST_TIMEOUT_MS_DEFAULT
    call_timeout_ms: int = CALL_TIMEOUT_MS_DEFAULT
    client_id: str = CLIENT_ID_DEFAULT
    connect_timeout_ms: int = _DEFAULTS.connect_timeout_ms
    retry_backoff_ms: int = _DEFAULTS.retry_backoff_ms
    retry_backoff_max_ms: int = _DEFAULTS.retry_backoff_max_ms
    metadata_max_age_ms: int = _DEFAULTS.metadata_max_age_ms
    connections_max_idle_ms: int = _DEFAULTS.connections_max_idle_ms
    security: SecurityOptions = field(default_factory=SecurityOptions)

    @property
    def client_options(self) -> ClientOptions:
        """For this process.  Raises ConfigError where its files or its environment contradict the options."""
        return ClientOptions(
            client_id=self.client_id,
            connect_timeout_ms=min(self.connect_timeout_ms, self.request_timeout_ms),
            request_timeout_ms=self.request_timeout_ms,
            call_timeout_ms=self.call_timeout_ms,
            # A deleted topic is reported as such before the call times out.
            unknown_topic_wait_ms=min(_DEFAULTS.unknown_topic_wait_ms, self.call_timeout_ms // 2),
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            connections_max_idle_ms=self.connections_max_idle_ms,
            security=self.security.settings(),
        )


def parse_connection(reader: OptionReader) -> Connection:
    """Raises `SparkOptionError`, which names the option."""

    def timeout_ms(name: str) -> int | None:
        return reader.number(name, at_least=TIMEOUT_MS_MIN, at_most=TIMEOUT_MS_MAX)

    request_ms, call_ms = timeout_ms("kafka.request.timeout.ms"), timeout_ms("kafka.default.api.timeout.ms")
    if call_ms is None:
        # A user who limits one request expects the error of a broker that is down after that time.
        call_ms = CALL_TIMEOUT_MS_DEFAULT if request_ms is None else request_ms
    if request_ms is None:
        request_ms = min(REQUEST_TIMEOUT_MS_DEFAULT, call_ms)
    connect_ms = timeout_ms("kafka.socket.connection.setup.timeout.ms")
    backoff_ms = reader.number("kafka.retry.backoff.ms", at_least=1, at_most=TIMEOUT_MS_MAX)
    backoff_max_ms = reader.number("kafka.retry.backoff.max.ms", at_least=1, at_most=TIMEOUT_MS_MAX)
    age_ms = reader.number("kafka.metadata.max.age.ms", at_least=0)
    idle_ms = reader.number("kafka.connections.max.idle.ms", at_least=TIMEOUT_MS_MIN)
    reader.without_effect(COMMON_WITHOUT_EFFECT)
    return Connection(
        reader.bootstrap(),
        request_ms,
        call_ms,
        reader.text("kafka.client.id") or CLIENT_ID_DEFAULT,
        _DEFAULTS.connect_timeout_ms if connect_ms is None else connect_ms,
        _DEFAULTS.retry_backoff_ms if backoff_ms is None else backoff_ms,
        _DEFAULTS.retry_backoff_max_ms if backoff_max_ms is None else backoff_max_ms,
        _DEFAULTS.metadata_max_age_ms if age_ms is None else age_ms,
        _DEFAULTS.connections_max_idle_ms if idle_ms is None else idle_ms,
        parse_security(reader),
    )


def connection_of(bootstrap: str, options: Mapping[str, str], client_id: str = CLIENT_ID_DEFAULT) -> Connection:
    """Of what connects beside a source or a sink with these options.  Raises `SparkOptionError`."""
    named = {"kafka.client.id": client_id, **{name.lower(): value for name, value in options.items()}}
    return parse_connection(OptionReader({**named, BOOTSTRAP_NAMES[0]: bootstrap}))
