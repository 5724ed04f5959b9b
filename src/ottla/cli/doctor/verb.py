"""`ottla doctor`: checks for everything that could keep a broker from working."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click

from ottla.cli.client_flags import command_config_flag, output_flag
from ottla.cli.doctor.findings import Finding, Severity, finding_object, finding_text, ok, problem, warning
from ottla.cli.output import data_lines, say
from ottla.model import broker_settings as setting
from ottla.model.broker_settings import ZOOKEEPER_CONNECT
from ottla.model.counted import counted
from ottla.model.errors import ConfigError
from ottla.model.limits import DAY_MS
from ottla.model.setting_sources import Notice, RawSetting, from_command_line, from_environment, resolve
from ottla.model.settings import BrokerSettings, TopicSettings
from ottla.model.topic_settings import RETENTION_BYTES, RETENTION_MS, SEGMENT_BYTES, SEGMENT_MS

if TYPE_CHECKING:
    from ottla.model.serve_options import ServeOptions
    from ottla.runtime.disk import Disk


Found = TypeVar("Found")
PROBLEMS_FOUND = 1

SETTINGS: Final = "settings"


@click.command(name="doctor")
@click.argument("config_argument", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--listen", "addresses", multiple=True, metavar="HOST:PORT", help="As for serve.")
@click.option("--zookeeper", metavar="HOST:PORT,.../CHROOT", help="As for serve: also the cluster is checked.")
@click.option("--config", "config_option", metavar="FILE", type=click.Path(path_type=Path), help="As for serve.")
@click.option("--set", "--override", "assignments", multiple=True, metavar="KEY=VALUE", help="As for serve.")
@click.option("--insecure-listen", is_flag=True, help="As for serve.")
@click.option("--admin-listen", metavar="[https://]HOST:PORT", help="As for serve.")
@output_flag("One object for each finding.")
@command_config_flag
def command(
    config_argument: Path | None,
    data_dir: str | None,
    addresses: tuple[str, ...],
    zookeeper: str | None,
    config_option: Path | None,
    assignments: tuple[str, ...],
    insecure_listen: bool,
    admin_listen: str | None,
    as_data: bool,
) -> int:
    """Check settings, address, disk, limits and data directory, as for `serve` with the same flags.

    \b
    ottla doctor --data-dir /var/lib/ottla

    A running broker is queried over the wire.  With --zookeeper (or zookeeper.connect) the cluster is checked too:
    ZooKeeper's servers and tree, and the brokers that are registered there, with their topics.  A small file is written
    to the data directory and removed again.  The exit status is 1 when there is a problem.
    """
    if config_argument is not None and config_option is not None:
        raise click.UsageError("The configuration is named twice: as an argument and by --config.")
    found: list[Finding] = []
    if zookeeper is not None:
        assignments = (*assignments, f"{ZOOKEEPER_CONNECT.name}={zookeeper}")
    flags = _AddressFlags(addresses, admin_listen, insecure_listen)
    for finding in _findings(config_option or config_argument, data_dir, flags, assignments):
        found.append(finding)
        say(*(data_lines(finding_object(finding)) if as_data else finding_text(finding)))
    problems = sum(finding.level is Severity.PROBLEM for finding in found)
    warnings = sum(finding.level is Severity.WARNING for finding in found)
    say(
        f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}, {len(found) - problems - warnings} ok",
        err=True,
    )
    return PROBLEMS_FOUND if problems else 0


class _AddressFlags(NamedTuple):
    listen: tuple[str, ...]
    admin_listen: str | None
    is_insecure: bool


def _findings(
    config: Path | None, data_dir: str | None, flags: _AddressFlags, assignments: tuple[str, ...]
) -> Iterator[Finding]:
    from ottla.cli.config_file import read_config_file
    from ottla.cli.doctor.machine import disk_findings, limit_findings, user_findings, version_findings
    from ottla.cli.serve import admin_listener, named_listeners
    from ottla.model.broker_settings import MAX_CONNECTIONS
    from ottla.model.serve_options import serve_options

    yield from version_findings()
    yield from user_findings()
    file: list[RawSetting] = []
    try:
        file = [] if config is None else read_config_file(config)
    except ConfigError as error:
        yield problem(SETTINGS, str(error), error.hint or "correct it")
    settings, findings = read_settings(assignments, os.environ, file)
    yield from findings
    options: ServeOptions | None = None
    try:
        listen = tuple(named_listeners(flags.listen))
        admin = None if flags.admin_listen is None else admin_listener(flags.admin_listen)
        options = serve_options(settings, data_dir=data_dir, listen=listen, admin_listener=admin, insecure_listen=True)
    except ConfigError as error:
        yield problem(SETTINGS, str(error), error.hint or "correct it")
    else:
        try:
            serve_options(
                settings, data_dir=data_dir, listen=listen, admin_listener=admin, insecure_listen=flags.is_insecure
            )
        except ConfigError as error:
            yield problem("address", str(error), error.hint or "correct it")
        else:
            yield from _openness(options)
            yield from _certificates(options)
        data_dir = options.data_dir
    if data_dir is not None:
        yield from disk_findings(data_dir)
        yield from limit_findings(data_dir, settings[MAX_CONNECTIONS])
    if options is not None:
        yield from _broker(options)
        if settings[ZOOKEEPER_CONNECT] is not None:
            yield from _cluster(options)


def _openness(options: ServeOptions) -> Iterator[Finding]:
    for listener in options.listeners:
        if not listener.is_loopback and not listener.uses_sasl and not listener.uses_tls:
            yield warning(
                "address",
                f"port {listener.port} listens on {listener.host or 'every interface'}: anyone who reaches it may do "
                "everything",
                "protect the port with a firewall",
            )


def _certificates(options: ServeOptions) -> Iterator[Finding]:
    of_http = [options.admin_listener, None if options.registry is None else options.registry.listener]
    found = [listener for listener in (*options.listeners, *filter(None, of_http)) if listener.uses_tls]
    if not found:
        return
    # Imported late: few brokers have TLS.
    from ottla.broker.security.tls_server import DAYS_LEFT_WARNING, TlsServer
    from ottla.runtime.clock import SystemClock

    for listener in found:
        try:
            server = TlsServer(options.settings.of_listener(listener.name), listener.name, SystemClock().now_ms)
        except ConfigError as error:
            yield problem("certificate", f"listener {listener.name}: {error}", error.hint or "correct it")
            continue
        text = f"the certificate of listener {listener.name} is valid for {int(server.days_left)} more days"
        if server.days_left < DAYS_LEFT_WARNING:
            yield warning("certificate", text, "renew it: a running broker loads a changed file")
        else:
            yield ok("certificate", text)


def _broker(options: ServeOptions) -> Iterator[Finding]:
    from ottla.cli.doctor.broker import is_running, running_findings, stopped_findings

    held = is_running(options.data_dir)
    if held is not None:
        yield from running_findings(options.listeners, held)
        return
    yield ok("lock", f"no broker is running on {options.data_dir}")
    yield from stopped_findings(options, _node_id(options))


def _node_id(options: ServeOptions) -> int:
    """A member's directory keeps its id, so that later starts need not name it."""
    from ottla.broker.tree.tree_backend import shares_tree
    from ottla.model.broker_settings import NODE_ID
    from ottla.storage.directory.directory_tree import node_id_of

    if options.settings.given(NODE_ID) is not None or not shares_tree(options.settings):
        return options.settings[NODE_ID]
    return _read(options.data_dir, node_id_of) or options.settings[NODE_ID]


def _cluster(options: ServeOptions) -> Iterator[Finding]:
    from ottla.cli.doctor.cluster import cluster_findings, directory_findings, zookeeper_findings
    from ottla.client.wire.address import Address
    from ottla.storage.checkpoints import read_meta_properties

    for found in zookeeper_findings(options.settings):
        if isinstance(found, Finding):
            yield found
            continue
        identity = _read(options.data_dir, read_meta_properties)
        if identity is not None:
            yield from directory_findings(found, _node_id(options), identity)
        yield from cluster_findings(
            {
                node_id: [Address(each.host, each.port) for each in broker.registration.listeners]
                for node_id, broker in found.brokers.items()
            }
        )


def _read(data_dir: str, read: Callable[[Disk, str], Found | None]) -> Found | None:
    """What a directory says of itself; None where that cannot be read, which another finding reports."""
    from ottla.model.errors import OttlaError
    from ottla.runtime.posix_disk import PosixDisk

    try:
        return read(PosixDisk(), data_dir) if os.path.isdir(data_dir) else None
    except (OSError, OttlaError):
        return None


def read_settings(
    assignments: Iterable[str], environment: Mapping[str, str], file: Sequence[RawSetting]
) -> tuple[BrokerSettings, list[Finding]]:
    """Findings for each name, and the settings of `serve` without those that it refuses."""
    refused: list[Finding] = []
    flags: list[RawSetting] = []
    for assignment in assignments:
        try:
            flags += from_command_line([assignment])
        except ConfigError as error:
            refused.append(_refused(error))
    variables, slips = from_environment(environment)
    layers = [[raw for raw in layer if _is_usable(raw, refused)] for layer in (flags, variables, file)]
    settings, notices = resolve(layers)
    findings = [*refused, *(_of_notice(notice) for notice in (*slips, *notices))]
    given = sum(1 for _ in settings.all_given())
    return settings, [ok(SETTINGS, f"{given} settings are not at their default"), *findings, *contradictions(settings)]


def _is_usable(raw: RawSetting, refused: list[Finding]) -> bool:
    """Whether its value can be read; one that cannot is added to `refused`."""
    try:
        resolve([[raw]])
    except ConfigError as error:
        refused.append(_refused(error))
        return False
    return True


def _refused(error: ConfigError) -> Finding:
    return problem(SETTINGS, str(error), error.hint or "correct the value")


def _of_notice(notice: Notice) -> Finding:
    facts = notice.facts
    where = f"{facts['name']} ({facts['origin']})"
    match notice.event:
        case "setting.unknown":
            nearest = facts.get("nearest")
            advice = f"did you mean {nearest}?" if nearest else "remove it; docs/configuration.md lists all settings"
            return problem(SETTINGS, f"{where}: unknown name", advice)
        case "setting.ignored" if notice.is_warning:
            return warning(
                SETTINGS, f"{where} protects nothing here: {facts['reason']}", "protect the port by other means"
            )
        case "setting.ignored":
            return warning(SETTINGS, f"{where} has no effect here", "remove it, or accept that it does nothing")
        case "setting.hidden":
            return warning(SETTINGS, f"{where} is overridden by {facts['by']}", "give one of the two")
        case _:
            return warning(SETTINGS, f"{where} is given more than once; the last one counts", "give it once")


def contradictions(settings: BrokerSettings) -> Iterator[Finding]:
    """Values that are valid alone and contradict each other."""
    from ottla.broker.tree.tree_backend import shares_tree

    topic = TopicSettings({}, settings)
    segment = topic[SEGMENT_BYTES]
    message, request = settings[setting.MESSAGE_MAX_BYTES], settings[setting.SOCKET_REQUEST_MAX_BYTES]
    if message > request:
        yield problem(
            SETTINGS,
            f"message.max.bytes={message} is more than socket.request.max.bytes={request}: such a batch never arrives",
            "raise socket.request.max.bytes above message.max.bytes",
        )
    if message > segment:
        yield problem(
            SETTINGS,
            f"message.max.bytes={message} is more than log.segment.bytes={segment}: such a batch is refused",
            "raise log.segment.bytes",
        )
    if 0 <= topic[RETENTION_BYTES] < segment:
        yield warning(
            SETTINGS,
            f"log.retention.bytes={topic[RETENTION_BYTES]} is less than a segment ({segment} bytes): "
            "only whole segments are deleted, so a partition keeps up to a segment more",
            "lower log.segment.bytes if the disk is that small",
        )
    if 0 <= topic[RETENTION_MS] < topic[SEGMENT_MS] and topic[RETENTION_MS] < DAY_MS:
        yield warning(
            SETTINGS,
            f"log.retention.ms={topic[RETENTION_MS]} is shorter than log.roll.ms={topic[SEGMENT_MS]}: "
            "a quiet partition keeps its records until its segment rolls",
            "lower log.roll.ms as well",
        )
    for each in (setting.DEFAULT_REPLICATION_FACTOR, setting.MIN_INSYNC_REPLICAS):
        if settings[each] > 1 and not shares_tree(settings):
            yield problem(SETTINGS, f"{each.name}={settings[each]}, and there is one broker", f"set {each.name}=1")
    if settings[setting.LOG_FLUSH_POLICY] == "os":
        yield warning(
            SETTINGS,
            "log.flush.policy=os: a power loss can lose some seconds of acknowledged records",
            "keep it if other copies exist; log.flush.policy=ack loses nothing",
        )
