"""`ottla systemd-unit`: a unit for the Ottla that is installed here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.output import say
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.model.settings import BrokerSettings

_MIB: Final = 1 << 20
# A broker without connections takes 41 MB (measured); logs, the tree and the topics' settings come to it.
_PROCESS_BYTES: Final = 512 * _MIB
# An idle connection beside its receive buffer (measured: 8.8 KB).
_CONNECTION_BYTES: Final = 9 * 1024
# The largest request that is read into objects, and its answer.
_DECODED_REQUEST_BYTES: Final = 15 * _MIB
# As measured for `SESSION_PARTITIONS_MAX` and `PARKED_PARTITIONS_MAX`.
_SESSION_PARTITION_BYTES: Final = 500
_PARKED_PARTITION_BYTES: Final = 300
# The schema registry's process, beside the broker.
_REGISTRY_BYTES: Final = 1024 * _MIB
# The rest is the system's, where the broker has the machine for itself.
_MACHINE_PERCENT: Final = 75

_STATE_PARENT: Final = "/var/lib/"
_DEFAULT_DATA_DIR: Final = f"{_STATE_PARENT}ottla"
# What systemd takes for itself between quotes: escapes, quotes, specifiers; and in a command variables, too.
_SPECIAL: Final = {"\\": "\\\\", '"': '\\"', "%": "%%"}
_SPECIAL_IN_COMMAND: Final = {**_SPECIAL, "$": "$$"}
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@+=:,./-]+\Z", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z", re.ASCII)


@click.command(name="systemd-unit")
@click.option("--data-dir", metavar="DIR", help=f"[default: log.dirs of the settings, else {_DEFAULT_DATA_DIR}]")
@click.option("--config", "config", metavar="FILE", help="Settings, as for `ottla serve`.")
@click.option("--user", default="ottla", show_default=True, metavar="NAME", help="The user that the broker runs as.")
@click.argument("arguments", metavar="[-- SERVE-ARGUMENTS...]", nargs=-1)
def command(data_dir: str | None, config: str | None, user: str, arguments: tuple[str, ...]) -> None:
    """Print a systemd unit that runs the broker installed here.

    \b
    sudo useradd --system --shell /usr/sbin/nologin ottla
    ottla systemd-unit --config /etc/ottla.properties | sudo tee /etc/systemd/system/ottla.service
    sudo systemctl daemon-reload && sudo systemctl enable --now ottla
    """
    if _USER.match(user) is None:
        raise click.UsageError(f"--user takes a user's name, not {user!r}.")
    serve = [sys.executable, "-P", "-m", "ottla", "serve"]
    serve += [] if config is None else [_absolute("--config", config)]
    settings = _present_settings(config)
    directory = _absolute("--data-dir", data_dir or _configured_data_dir(settings) or _DEFAULT_DATA_DIR)
    serve += ["--data-dir", directory, *arguments]
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    budgets = memory_budgets(settings, _processes_count(arguments))
    say(*unit_lines(serve, directory, user, memory_lines(budgets, machine_bytes)))


def _processes_count(arguments: Sequence[str]) -> int:
    """Of `--processes` among the arguments for `ottla serve`; what is no number is refused there."""
    from ottla.runtime.process import usable_cores_count

    text = "1"
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--processes":
            text = value if equals else "".join(arguments[index + 1 : index + 2])
    if text == "auto":
        return usable_cores_count()
    return max(1, int(text)) if text.isdecimal() else 1


def _present_settings(config: str | None) -> BrokerSettings:
    """What the settings say, where they are there already and this user may read them; else the defaults."""
    from ottla.cli.config_file import read_config_file
    from ottla.model.setting_sources import resolve

    is_readable = config is not None and os.access(config, os.R_OK)
    return resolve([read_config_file(Path(config))] if config is not None and is_readable else [])[0]


def _configured_data_dir(settings: BrokerSettings) -> str | None:
    from ottla.model.broker_settings import LOG_DIRS
    from ottla.model.serve_options import data_dir_of

    return None if settings[LOG_DIRS] is None else data_dir_of(settings)


def memory_budgets(settings: BrokerSettings, processes_count: int = 1) -> dict[str, int]:
    """The most bytes that each part of the brokers takes.  Partitions and topics have no bound: `process` is for them.

    The processes of `ottla serve --processes` have one schema registry, and each all other parts.
    """
    from ottla.broker.net import limits
    from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX
    from ottla.model.broker_settings import (
        LISTENERS,
        LOG_CLEANER_DEDUPE_BUFFER_SIZE,
        LOG_CLEANER_ENABLE,
        MAX_CONNECTIONS,
        QUEUED_MAX_REQUEST_BYTES,
        SCHEMA_REGISTRY_LISTENERS,
    )
    from ottla.model.listener import parse_listeners
    from ottla.storage.segment.indexes import INDEX_CACHE_BYTES

    requests_bytes = settings[QUEUED_MAX_REQUEST_BYTES]
    listeners_count = len(parse_listeners(settings[LISTENERS], setting=LISTENERS.name))
    budgets = {
        "process": _PROCESS_BYTES,
        "connections": settings[MAX_CONNECTIONS] * (limits.RECEIVE_BUFFER_BYTES + _CONNECTION_BYTES),
        "requests": listeners_count * (limits.RECEIVE_BUDGET_BYTES if requests_bytes < 0 else requests_bytes),
        # Of Produce, of Fetch, and of all other APIs together.
        "decoded": 3 * limits.LARGE_REQUESTS_AT_ONCE * _DECODED_REQUEST_BYTES,
        "responses": limits.UNSENT_ANSWERS_BYTES_MAX + limits.WAITING_ANSWERS_BYTES_MAX,
        "batches": limits.OPENED_BATCH_BYTES_MAX + limits.OPENED_QUICKLY_BYTES_MAX,
        "fetches": limits.SESSION_PARTITIONS_MAX * _SESSION_PARTITION_BYTES
        + limits.PARKED_PARTITIONS_MAX * _PARKED_PARTITION_BYTES,
        "groups": MEMBER_BYTES_MAX,
        "offsets": OFFSET_BYTES_MAX,
        "indexes": INDEX_CACHE_BYTES,
    }
    if settings[LOG_CLEANER_ENABLE]:
        budgets["cleaner"] = settings[LOG_CLEANER_DEDUPE_BUFFER_SIZE]
    budgets = {name: processes_count * size_bytes for name, size_bytes in budgets.items()}
    if settings[SCHEMA_REGISTRY_LISTENERS] is not None:
        budgets["registry"] = _REGISTRY_BYTES
    return budgets


def memory_lines(budgets: Mapping[str, int], machine_bytes: int) -> list[str]:
    """The limit of memory with its arithmetic: the sum of the budgets, or most of a larger machine.

    The page cache of the logs counts for the limit, too.  Linux reclaims it first, so a lower limit on a large machine
    would not end the broker, but take the memory from which consumers are served.
    """
    sum_bytes = sum(budgets.values())
    share_bytes = machine_bytes * _MACHINE_PERCENT // 100
    terms = " + ".join(f"{name} {_mib(value)}" for name, value in budgets.items())
    return [
        "# What the budgets of its parts allow, in MiB:",
        f"# {terms} = {_mib(sum_bytes)}.",
        f"# Where {_MACHINE_PERCENT} % of the machine is more ({_mib(share_bytes)} here), it: page cache counts, too.",
        f"MemoryMax={_mib(max(sum_bytes, share_bytes))}M",
    ]


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB)


def unit_lines(serve: list[str], data_dir: str, user: str, memory: Sequence[str]) -> list[str]:
    """The broker raises its soft limit of open files to the hard one itself, and notifies systemd when it is ready."""
    return [
        "[Unit]",
        "Description=Ottla, a Kafka broker",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "# Ready when it serves; the check of a large directory after a crash may take its time.",
        "Type=notify",
        "TimeoutStartSec=infinity",
        f"User={user}",
        f"ExecStart={' '.join(_word(each, _SPECIAL_IN_COMMAND) for each in serve)}",
        "# SIGTERM to the broker alone: it hands over, flushes, and ends what it has started.",
        "KillMode=mixed",
        "TimeoutStopSec=120",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        "LimitNOFILE=1048576",
        *memory,
        "UMask=0077",
        *_room(data_dir),
        "",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "# Python may be installed in a user's home.",
        "ProtectHome=read-only",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallErrorNumber=EPERM",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]


def _room(data_dir: str) -> list[str]:
    """systemd makes and owns a directory of /var/lib; another one must be there, and be the user's."""
    name = data_dir.removeprefix(_STATE_PARENT)
    if data_dir.startswith(_STATE_PARENT) and _PLAIN.match(name) is not None and ":" not in name:
        return [f"StateDirectory={name}", "StateDirectoryMode=0700"]
    return [f"ReadWritePaths={_word(data_dir, _SPECIAL)}"]


def _word(text: str, special: Mapping[str, str]) -> str:
    if _PLAIN.match(text) is not None:
        return text
    return '"' + "".join(special.get(character, character) for character in text) + '"'


def _absolute(flag: str, text: str) -> str:
    path = os.path.abspath(text)
    if not path.isprintable():
        raise ConfigError(f"{flag} {text!r} cannot be in a unit", hint="name a path of printable characters")
    return path
