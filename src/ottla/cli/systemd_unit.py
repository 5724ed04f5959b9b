"""`ottla systemd-unit`: a unit for the Ottla that is installed here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.cli.output import say
from ottla.model.errors import ConfigError

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
@click.option("--user", default="ottla", show_default=True, metavar="USER", help="The user that the broker runs as.")
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
    directory = _absolute("--data-dir", data_dir or _configured_data_dir(config) or _DEFAULT_DATA_DIR)
    say(*unit_lines([*serve, "--data-dir", directory, *arguments], directory, user))


def _configured_data_dir(config: str | None) -> str | None:
    """What the settings say, where they are there already and this user may read them."""
    from ottla.cli.config_file import read_config_file
    from ottla.model.broker_settings import LOG_DIRS
    from ottla.model.serve_options import data_dir_of
    from ottla.model.setting_sources import resolve

    if config is None or not os.access(config, os.R_OK):
        return None
    settings, _ = resolve([read_config_file(Path(config))])
    return None if settings[LOG_DIRS] is None else data_dir_of(settings)


def unit_lines(serve: list[str], data_dir: str, user: str) -> list[str]:
    """The broker raises its soft limit of open files to the hard one itself, and tells systemd when it is ready."""
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
        "UMask=0077",
        *_room(data_dir),
        "",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "# Python may be installed in somebody's home.",
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
        raise ConfigError(f"{flag} {text!r} cannot stand in a unit", hint="name a path of printable characters")
    return path
