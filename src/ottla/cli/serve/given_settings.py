"""The broker's settings from a command line, the environment and a file; names without effect are logged."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from ottla.cli.config_file import read_config_file
from ottla.model.broker_settings import ZOOKEEPER_CONNECT
from ottla.model.setting_sources import Notice, RawSetting, from_command_line, from_environment, resolve
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields

log = logging.getLogger(__name__)


def given_settings(assignments: Iterable[str], config: Path | None, *, zookeeper: str | None = None) -> BrokerSettings:
    """`assignments`: of --set.  `zookeeper`: a flag of its own, which wins over --set."""
    flags = from_command_line(assignments)
    if zookeeper is not None:
        flags = [raw for raw in flags if raw.name != ZOOKEEPER_CONNECT.name]
        flags.append(RawSetting(ZOOKEEPER_CONNECT.name, zookeeper, "--zookeeper"))
    environment, environment_notices = from_environment(os.environ)
    file: list[RawSetting] = [] if config is None else read_config_file(config)
    settings, notices = resolve([flags, environment, file])
    for notice in (*environment_notices, *notices):
        _log_notice(notice)
    return settings


def _log_notice(notice: Notice) -> None:
    level = logging.WARNING if notice.is_warning else logging.INFO
    log.log(level, notice.event, extra=fields(**notice.facts))
