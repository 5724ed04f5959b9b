"""The precedence of settings: command line, then environment, then file, then default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.errors import ConfigError
from ottla.model.nearest import nearest_name
from ottla.model.security_settings import LISTENER_SETTINGS
from ottla.model.setting import AnySetting, SettingValue, Source
from ottla.model.settings import BrokerSettings, Given, listener_key
from ottla.model.topic_settings import SYNONYMS

# Keys that protect a broker.
_GUARD_PREFIXES: Final = ("authentication.", "authorizer.", "listener.name.", "sasl.", "security.", "ssl.")
# Prefixes of keys that contain other names: `listener.name.internal.ssl.keystore.location`.
_IGNORED_PREFIXES: Final = ("listener.name.", "zookeeper.", "rlmm.config.", "rsm.config.")

# Apache Kafka's broker keys without effect here: a file written for it is accepted, and ignored keys are reported.  The
# names are those of version 4.1, and older ones that files of the ZooKeeper era still contain.
_KAFKA_NAMES: Final = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
background.threads broker.heartbeat.interval.ms
broker.id.generation.enable broker.session.timeout.ms client.quota.callback.class
control.plane.listener.name controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.quorum.append.linger.ms controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
controller.socket.timeout.ms
create.topic.policy.class.name delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms delegation.token.secret.key delete.records.purgatory.purge.interval.requests
early.start.listeners fetch.purgatory.purge.interval.requests
group.consumer.migration.policy group.consumer.regex.refresh.interval.ms
group.coordinator.append.linger.ms group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignors group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
group.share.max.share.sessions group.share.max.size group.share.min.heartbeat.interval.ms
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.persister.class.name group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms inter.broker.protocol.version
kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.threads log.dir.failure.timeout.ms
log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms log.preallocate max.connection.creation.rate
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
metadata.max.retention.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads
num.replica.fetchers offsets.commit.timeout.ms
offsets.topic.compression.codec
password.encoder.secret
principal.builder.class process.roles producer.id.expiration.check.interval.ms
producer.purgatory.purge.interval.requests queued.max.requests
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable
replica.socket.receive.buffer.bytes
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class security.providers
server.max.startup.time.ms share.coordinator.append.linger.ms share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm
ssl.keystore.password
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.password
telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms
transaction.partition.verification.enable
transaction.two.phase.commit.enable unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable
"""

IGNORED_KAFKA_KEYS: Final = frozenset(_KAFKA_NAMES.split())


def is_ignored_kafka_key(name: str) -> bool:
    """Whether Apache Kafka knows this broker key and Ottla ignores it."""
    return name in IGNORED_KAFKA_KEYS or name.startswith(_IGNORED_PREFIXES)


def is_guard_key(name: str) -> bool:
    """Whether an ignored key was meant to protect the broker, so that ignoring it deserves a warning."""
    return name.startswith(_GUARD_PREFIXES)


ENVIRONMENT_PREFIX: Final = "OTTLA_"
_UNGUARDED: Final = "it asks for a protection that Ottla does not offer: docs/security.md lists what it does"


class RawSetting(NamedTuple):
    """A name and a text as given; `origin` says where: `server.properties line 3`."""

    name: str
    text: str
    origin: str


class Notice(NamedTuple):
    """Something that the operator should know before the start: the name of an event and its facts."""

    event: str
    facts: Mapping[str, str]

    @property
    def is_warning(self) -> bool:
        """A key of Kafka's without effect is harmless, unless it was meant to protect the broker."""
        return self.event != "setting.ignored" or self.facts["reason"] == _UNGUARDED


class _Name(NamedTuple):
    setting: AnySetting
    is_alias: bool


_NAMES: Final[Mapping[str, _Name]] = {
    **{setting.name: _Name(setting, False) for setting in BROKER_SETTINGS.values()},
    **{alias: _Name(setting, True) for setting in BROKER_SETTINGS.values() for alias in setting.aliases},
}


def resolve(layers: Sequence[Iterable[RawSetting]]) -> tuple[BrokerSettings, list[Notice]]:
    """Settings from layers, the strongest first.

    Unknown names and Kafka's names that we ignore become notices; a value that cannot be used raises
    `ConfigError`, even where a stronger layer hides it, because a later start would fail on it.
    """
    given: dict[str, Given] = {}
    notices: list[Notice] = []
    for layer in layers:
        for name, found in _read_layer(layer, notices).items():
            given.setdefault(name, found)
    notices.extend(_hidden(given))
    of_listeners = {key: given.pop(name) for name in list(given) if (key := listener_key(name)) is not None}
    return BrokerSettings(given, of_listeners), notices


def _hidden(given: Mapping[str, Given]) -> Iterator[Notice]:
    """Of several units of one setting (ms, minutes, hours) only the first counts, in any layer."""
    for synonyms in SYNONYMS.values():
        names = [synonym.setting.name for synonym in synonyms if synonym.setting.name in given]
        for name in names[1:]:
            yield Notice("setting.hidden", {"name": name, "origin": given[name].origin, "by": names[0]})


def from_environment(environment: Mapping[str, str]) -> tuple[list[RawSetting], list[Notice]]:
    """Settings as `OTTLA_LOG_SEGMENT_BYTES`.

    Other variables share the prefix, so an unknown one is reported only when it resembles a setting.
    """
    known = {variable_of(name): name for name in (*_NAMES, *IGNORED_KAFKA_KEYS)}
    found: list[RawSetting] = []
    notices: list[Notice] = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = known.get(variable)
        if name is not None:
            found.append(RawSetting(name, text, f"environment {variable}"))
            continue
        nearest = nearest_name(variable, map(variable_of, _NAMES))
        if nearest is not None:
            notices.append(Notice("setting.unknown", {"name": variable, "origin": "environment", "nearest": nearest}))
    return found, notices


def from_command_line(assignments: Iterable[str]) -> list[RawSetting]:
    """Settings as `--set log.segment.bytes=1048576`."""
    found: list[RawSetting] = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"--set {assignment!r} has no '='", hint="write --set name=value, such as num.partitions=4"
            )
        name = name.strip()
        if is_sensitive(name):
            raise ConfigError(
                f"--set {name}: every user of this machine could read it in the list of processes",
                hint=f"write it to the file of --config, or set {variable_of(name)}",
            )
        found.append(RawSetting(name, text, "command line"))
    return found


def is_sensitive(name: str) -> bool:
    """Whether this is a setting whose value is never shown."""
    key = listener_key(name)
    if key is not None:
        return LISTENER_SETTINGS[key.name].is_sensitive
    known = _NAMES.get(name)
    return known is not None and known.setting.is_sensitive


def _read_layer(layer: Iterable[RawSetting], notices: list[Notice]) -> dict[str, Given]:
    """The last of equal names wins, as in Java's properties; a name wins over its older names."""
    by_name: dict[str, Given] = {}
    by_alias: dict[str, Given] = {}
    for raw in layer:
        key = listener_key(raw.name)
        if key is not None:
            value = _parse(LISTENER_SETTINGS[key.name], raw)
            by_name[raw.name] = Given(value, Source.STATIC_BROKER, raw.origin)
            continue
        known = _NAMES.get(raw.name)
        if known is None:
            notices.append(_notice_of_unused(raw))
            continue
        target = by_alias if known.is_alias else by_name
        if known.setting.name in target:
            notices.append(Notice("setting.repeated", {"name": raw.name, "origin": raw.origin}))
        target[known.setting.name] = Given(_parse(known.setting, raw), Source.STATIC_BROKER, raw.origin)
    return {**by_alias, **by_name}


def _parse(setting: AnySetting, raw: RawSetting) -> SettingValue:
    try:
        return setting.parse(raw.text)
    except ConfigError as error:
        raise ConfigError(f"{error} ({raw.origin})", hint=error.hint) from None


def _notice_of_unused(raw: RawSetting) -> Notice:
    if is_ignored_kafka_key(raw.name):
        reason = _UNGUARDED if is_guard_key(raw.name) else "it has no effect here"
        return Notice("setting.ignored", {"name": raw.name, "origin": raw.origin, "reason": reason})
    nearest = _meant(raw.name)
    facts = {"name": raw.name, "origin": raw.origin}
    return Notice("setting.unknown", facts if nearest is None else {**facts, "nearest": nearest})


def _meant(name: str) -> str | None:
    """The probable intention: the broker's name for a topic's setting, or the nearest spelling."""
    synonyms = SYNONYMS.get(name)
    return synonyms[0].setting.name if synonyms else nearest_name(name, _NAMES)


def variable_of(name: str) -> str:
    """The variable of the environment that gives this setting."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
