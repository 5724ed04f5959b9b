"""`ottla serve`: run a broker."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from ottla.cli.client_flags import insecure_listen_flag
from ottla.cli.config_file import given_settings
from ottla.model.broker_settings import TREE_SOCKET, ZOOKEEPER_CONNECT
from ottla.model.errors import ConfigError
from ottla.model.http_settings import ADMIN
from ottla.model.listener import Listener, parse_flag, parse_http
from ottla.model.serve_options import DEFAULT_DATA_DIR, ServeOptions, serve_options
from ottla.observe.events import DEFAULT_LEVEL, LEVEL_NAMES, start_logging
from ottla.runtime.start_line import may_start
from ottla.storage.directory.process_places import PROCESSES_FILE, PROCESSES_FOLDER


@click.command(name="serve")
@click.argument("config_argument", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--data-dir", metavar="DIR", help=f"The data directory.  [default: log.dirs, else ./{DEFAULT_DATA_DIR}]")
@click.option(
    "--listen",
    "addresses",
    multiple=True,
    metavar="[PROTOCOL://]HOST:PORT",
    help="Address to listen on, as SASL_SSL://HOST:PORT with another protocol than PLAINTEXT; port 0 selects a free "
    "one.  Repeatable.  [default: listeners, else 127.0.0.1:9092]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="Be one of the brokers that share this ZooKeeper, HOST:PORT,HOST:PORT/CHROOT.  [default: zookeeper.connect]",
)
@click.option(
    "--processes",
    metavar="N",
    help="Run N broker processes that share the port and divide the partitions, on Linux; `auto` is one for each "
    "core, and no fewer than before.  [default: as many as there were, at first 1]",
)
@click.option("--log-broker", hidden=True, help="The number of this process in the log of several.")
@click.option("--start-line", is_flag=True, hidden=True, help="Wait for a line at standard input, and end without one.")
@click.option(
    "--config",
    "config_option",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings: server.properties, or TOML when the name ends in .toml.",
)
@click.option(
    "--set",
    "--override",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting by Kafka's name; wins over the environment (OTTLA_LOG_SEGMENT_BYTES) and the file.",
)
@insecure_listen_flag
@click.option(
    "--admin-listen",
    metavar="[https://]HOST:PORT",
    help="Serve /metrics (Prometheus), /healthz and /readyz over HTTP there.  [default: off]",
)
@click.option("--log-level", type=click.Choice(LEVEL_NAMES), default=DEFAULT_LEVEL, show_default=True)
def command(
    config_argument: Path | None,
    data_dir: str | None,
    addresses: tuple[str, ...],
    zookeeper: str | None,
    processes: str | None,
    log_broker: str | None,
    start_line: bool,
    config_option: Path | None,
    assignments: tuple[str, ...],
    insecure_listen: bool,
    admin_listen: str | None,
    log_level: str,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    \b
    ottla serve --data-dir /var/lib/ottla --listen 127.0.0.1:9092 --set log.retention.hours=24

    CONFIG is a file as for --config, so that the command line of Apache Kafka's start script works here too.

    With --processes a supervisor starts the brokers, holds what they share, and starts again those that end.
    """
    if start_line and not may_start():
        return 1
    if config_argument is not None and config_option is not None:
        raise click.UsageError("The configuration is named twice: as an argument and by --config.")
    start_logging(log_level, own_facts={} if log_broker is None else {"broker": log_broker})
    settings = given_settings(assignments, config_option or config_argument, zookeeper=zookeeper)
    listen = tuple(named_listeners(addresses))
    options = serve_options(
        settings,
        data_dir=data_dir,
        listen=listen,
        admin_listener=None if admin_listen is None else admin_listener(admin_listen),
        insecure_listen=insecure_listen,
    )

    if processes is not None or may_be_of_processes(options):
        from ottla.cli.processes import ServeFlags, serve_processes

        flags = ServeFlags(config_option or config_argument, assignments, insecure_listen, log_level)
        status = serve_processes(options, processes, flags)
        if status is not None:
            return status

    # 290 modules and the logs, of which nothing is garbage; `serve` enables it again when the broker is ready.
    gc.disable()
    from ottla.broker.net.listener import CHOOSE_ANOTHER, AddressTaken
    from ottla.broker.server import serve
    from ottla.runtime.event_loop import run

    try:
        run(serve(options))
    except AddressTaken as error:
        from ottla.cli.port_holder import holder_of

        error.hint = f"{holder_of(error.host, error.port)}: {CHOOSE_ANOTHER}"
        raise
    return 0


def may_be_of_processes(options: ServeOptions) -> bool:
    """Whether several processes served the directory last, and this is not one of them."""
    settings = options.settings
    is_one_of_several = settings[ZOOKEEPER_CONNECT] is not None or settings[TREE_SOCKET] is not None
    return not is_one_of_several and os.path.exists(os.path.join(options.data_dir, PROCESSES_FOLDER, PROCESSES_FILE))


def admin_listener(address: str) -> Listener:
    return parse_http(address, setting="--admin-listen", name=ADMIN)


def named_listeners(addresses: Iterable[str]) -> Iterable[Listener]:
    """Listeners need names, and flags have none: the first of a protocol has its name, the next PLAINTEXT_2."""
    counts: Counter[str] = Counter()
    for address in addresses:
        try:
            listener = parse_flag(address)
        except ConfigError as error:
            raise ConfigError(f"--listen {error}", hint=error.hint) from None
        counts[listener.protocol] += 1
        count = counts[listener.protocol]
        yield listener if count == 1 else listener._replace(name=f"{listener.protocol}_{count}")
