"""Checks of the settings as a whole: names without effect, values that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.cli.doctor.findings import Finding, ok, problem, warning
from ottla.model import broker_settings as setting
from ottla.model.errors import ConfigError
from ottla.model.setting_sources import Notice, RawSetting, from_command_line, from_environment, resolve
from ottla.model.settings import BrokerSettings, TopicSettings
from ottla.model.topic_settings import RETENTION_BYTES, RETENTION_MS, SEGMENT_BYTES, SEGMENT_MS

AREA: Final = "settings"


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
    return settings, [ok(AREA, f"{given} settings are not at their default"), *findings, *contradictions(settings)]


def _is_usable(raw: RawSetting, refused: list[Finding]) -> bool:
    """Whether its value can be read; one that cannot is added to `refused`."""
    try:
        resolve([[raw]])
    except ConfigError as error:
        refused.append(_refused(error))
        return False
    return True


def _refused(error: ConfigError) -> Finding:
    return problem(AREA, str(error), error.hint or "correct the value")


def _of_notice(notice: Notice) -> Finding:
    facts = notice.facts
    where = f"{facts['name']} ({facts['origin']})"
    match notice.event:
        case "setting.unknown":
            nearest = facts.get("nearest")
            advice = f"did you mean {nearest}?" if nearest else "remove it; docs/configuration.md lists all settings"
            return problem(AREA, f"{where}: unknown name", advice)
        case "setting.ignored" if notice.is_warning:
            return warning(AREA, f"{where} protects nothing here: {facts['reason']}", "protect the port by other means")
        case "setting.ignored":
            return warning(AREA, f"{where} has no effect here", "remove it, or accept that it does nothing")
        case "setting.hidden":
            return warning(AREA, f"{where} is overridden by {facts['by']}", "give one of the two")
        case _:
            return warning(AREA, f"{where} is given more than once; the last one counts", "give it once")


def contradictions(settings: BrokerSettings) -> Iterator[Finding]:
    """Values that are valid alone and contradict each other."""
    topic = TopicSettings({}, settings)
    segment = topic[SEGMENT_BYTES]
    message, request = settings[setting.MESSAGE_MAX_BYTES], settings[setting.SOCKET_REQUEST_MAX_BYTES]
    if message > request:
        yield problem(
            AREA,
            f"message.max.bytes={message} is more than socket.request.max.bytes={request}: such a batch never arrives",
            "raise socket.request.max.bytes above message.max.bytes",
        )
    if message > segment:
        yield problem(
            AREA,
            f"message.max.bytes={message} is more than log.segment.bytes={segment}: such a batch is refused",
            "raise log.segment.bytes",
        )
    if 0 <= topic[RETENTION_BYTES] < segment:
        yield warning(
            AREA,
            f"log.retention.bytes={topic[RETENTION_BYTES]} is less than a segment ({segment} bytes): "
            "only whole segments are deleted, so a partition keeps up to a segment more",
            "lower log.segment.bytes if the disk is that small",
        )
    if 0 <= topic[RETENTION_MS] < topic[SEGMENT_MS] and topic[RETENTION_MS] < _DAY_MS:
        yield warning(
            AREA,
            f"log.retention.ms={topic[RETENTION_MS]} is shorter than log.roll.ms={topic[SEGMENT_MS]}: "
            "a quiet partition keeps its records until its segment rolls",
            "lower log.roll.ms as well",
        )
    for each in (setting.DEFAULT_REPLICATION_FACTOR, setting.MIN_INSYNC_REPLICAS):
        if settings[each] > 1 and settings[setting.ZOOKEEPER_CONNECT] is None:
            yield problem(AREA, f"{each.name}={settings[each]}, and there is one broker", f"set {each.name}=1")
    if settings[setting.LOG_FLUSH_POLICY] == "os":
        yield warning(
            AREA,
            "log.flush.policy=os: a power loss can lose some seconds of acknowledged records",
            "keep it if other copies exist; log.flush.policy=ack loses nothing",
        )


_DAY_MS: Final = 86_400_000
