"""`ottla doctor`: checks for everything that could keep a broker from working."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.findings import Finding, Level, finding_object, finding_text, ok, problem, warning

if TYPE_CHECKING:
    from ottla.model.serve_options import ServeOptions
    from ottla.model.setting_sources import RawSetting

PROBLEMS_FOUND = 1


@click.command(name="doctor")
@click.argument("config_argument", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--listen", "addresses", multiple=True, metavar="HOST:PORT", help="As for serve.")
@click.option("--config", "config_option", metavar="FILE", type=click.Path(path_type=Path), help="As for serve.")
@click.option("--set", "--override", "assignments", multiple=True, metavar="KEY=VALUE", help="As for serve.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each finding.")
def command(
    config_argument: Path | None,
    data_dir: str | None,
    addresses: tuple[str, ...],
    config_option: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check settings, address, disk, limits and data directory, as for `serve` with the same flags.

    A running broker is queried over the wire.  A small file is written to the data directory and removed again.  The
    exit status is 1 when there is a problem.
    """
    if config_argument is not None and config_option is not None:
        raise click.UsageError("The configuration is named twice: as an argument and by --config.")
    found: list[Finding] = []
    for finding in _findings(config_option or config_argument, data_dir, addresses, assignments):
        found.append(finding)
        click.echo(json.dumps(finding_object(finding)) if as_json else finding_text(finding))
    problems = sum(finding.level is Level.PROBLEM for finding in found)
    warnings = sum(finding.level is Level.WARNING for finding in found)
    click.echo(f"{problems} problems, {warnings} warnings, {len(found) - problems - warnings} ok", err=True)
    return PROBLEMS_FOUND if problems else 0


def _findings(
    config: Path | None, data_dir: str | None, addresses: tuple[str, ...], assignments: tuple[str, ...]
) -> Iterator[Finding]:
    from ottla.cli.config_file import read_config_file
    from ottla.cli.doctor_machine import disk_findings, limit_findings, version_findings
    from ottla.cli.doctor_settings import AREA, read_settings
    from ottla.cli.serve import named_listeners
    from ottla.model.broker_settings import MAX_CONNECTIONS
    from ottla.model.errors import ConfigError
    from ottla.model.serve_options import serve_options

    yield from version_findings()
    file: list[RawSetting] = []
    try:
        file = [] if config is None else read_config_file(config)
    except ConfigError as error:
        yield problem(AREA, str(error), error.hint or "correct it")
    settings, findings = read_settings(assignments, os.environ, file)
    yield from findings
    options: ServeOptions | None = None
    try:
        listen = tuple(named_listeners(addresses))
        options = serve_options(settings, data_dir=data_dir, listen=listen, insecure_listen=True)
    except ConfigError as error:
        yield problem(AREA, str(error), error.hint or "correct it")
    else:
        yield from _openness(options)
        data_dir = options.data_dir
    if data_dir is not None:
        yield from disk_findings(data_dir)
        yield from limit_findings(data_dir, settings[MAX_CONNECTIONS])
    if options is not None:
        yield from _broker(options)


def _openness(options: ServeOptions) -> Iterator[Finding]:
    for listener in options.listeners:
        if not listener.is_loopback:
            yield warning(
                "address",
                f"port {listener.port} listens on {listener.host or 'every interface'}: anyone who reaches it may do "
                "everything",
                "serve needs --insecure-listen for it; protect the port with a firewall",
            )


def _broker(options: ServeOptions) -> Iterator[Finding]:
    from ottla.cli.doctor_broker import is_running, running_findings, stopped_findings
    from ottla.model.broker_settings import NODE_ID

    held = is_running(options.data_dir)
    if held is not None:
        yield from running_findings(options.listeners, held)
        return
    yield ok("lock", f"no broker is running on {options.data_dir}")
    node_id = options.settings[NODE_ID]
    yield from stopped_findings(options.listeners, options.advertised, options.data_dir, node_id)
