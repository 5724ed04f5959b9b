"""`ottla registry serve`: a schema registry over any Kafka cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from ottla.cli.client_flags import bootstrap_flag, given_security, insecure_listen_flag, listen_flag
from ottla.cli.config_file import file_settings
from ottla.model.broker_settings import SCHEMA_REGISTRY_TOPIC
from ottla.model.http_settings import REGISTRY
from ottla.model.listener import parse_http
from ottla.model.serve_options import RegistryOptions, require_registry_listener
from ottla.model.settings import BrokerSettings
from ottla.observe.events import DEFAULT_LEVEL, LEVEL_NAMES, start_logging
from ottla.runtime.installed import SCHEMAS, require_modules

LISTEN: Final = "127.0.0.1:8081"


@click.command(name="serve")
@bootstrap_flag
@listen_flag(LISTEN, metavar="[https://]HOST:PORT")
@click.option(
    "--topic",
    metavar="TOPIC",
    default=SCHEMA_REGISTRY_TOPIC.default,
    show_default=True,
    help="Where the schemas are kept.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    metavar="N",
    help="Replicas of the topic, when it is made.  [default: as many as there are brokers, 3 at most]",
)
@click.option(
    "--advertise",
    metavar="URL",
    help="Where other registries of the same topic reach this one.  [default: the address it listens on]",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name by which clients reach it; * for any.  Repeatable.  [default: localhost, this machine's name, "
    "those of --listen and --advertise, and addresses]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of its TLS and logins, as in the broker's file: ssl.*, authentication.*, super.users.",
)
@click.option("--settings-from-input", is_flag=True, hidden=True)
@click.option("--until-eof", is_flag=True, help="End, too, when standard input ends.")
@insecure_listen_flag
@click.option("--log-level", type=click.Choice(LEVEL_NAMES), default=DEFAULT_LEVEL, show_default=True)
def serve(
    bootstrap: str,
    listen: str,
    topic: str,
    replication_factor: int | None,
    advertise: str | None,
    allowed_hosts: tuple[str, ...],
    config: Path | None,
    settings_from_input: bool,
    until_eof: bool,
    insecure_listen: bool,
    log_level: str,
) -> None:
    """Run a schema registry until SIGTERM or Ctrl-C: Confluent's REST API, over a compacted topic of the cluster.

    \b
    ottla registry serve --listen 127.0.0.1:8081

    Several may run over one topic: each answers, and one of them writes.
    """
    security = given_security()
    start_logging(log_level)
    settings = BrokerSettings() if config is None else file_settings(config)
    if settings_from_input:
        settings = _given_by_broker()
    listener = parse_http(listen, setting="--listen", name=REGISTRY)
    settings = settings.of_listener(REGISTRY)
    require_registry_listener(listener, settings, insecure_listen=insecure_listen)
    require_modules("a schema registry", SCHEMAS, "schemas")

    from ottla.registry.server import serve

    options = RegistryOptions(
        listener=listener,
        topic=topic,
        replication_factor=replication_factor,
        advertised_url=advertise,
        allowed_hosts=allowed_hosts,
        settings=settings,
    )
    serve(options, bootstrap, until_eof=until_eof, security=security)


def _given_by_broker() -> BrokerSettings:
    """From the first line of the input, which the broker writes."""
    return BrokerSettings.of(json.loads(sys.stdin.buffer.readline()), origin="the broker's settings")
