"""`ottla cluster protect`: closes a tree that was open to every client of its ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.config_file import given_settings
from ottla.cli.output import say
from ottla.model.counted import counted
from ottla.model.errors import ConfigError
from ottla.model.settings import BrokerSettings
from ottla.observe.events import start_logging


@click.command(name="protect")
@click.option("--zookeeper", metavar="HOST:PORT,.../CHROOT", help="As for serve.  [default: zookeeper.connect]")
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="The brokers' settings: zookeeper.digest and TLS."
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting by its name.")
def command(zookeeper: str | None, config: Path | None, assignments: tuple[str, ...]) -> None:
    """Give all nodes of a cluster in ZooKeeper to the brokers' zookeeper.digest.

    \b
    ottla cluster protect --config /etc/ottla/server.properties

    Every broker must have that digest before: one without it cannot read the tree any more.  The brokers may run.
    Consumers without a master keep their rights below /consumers by zookeeper.consumers.digest.
    """
    start_logging("WARNING")
    settings = given_settings(assignments, config, zookeeper=zookeeper)

    from ottla.coordination.zookeeper.security import zookeeper_security
    from ottla.model.broker_settings import ZOOKEEPER_CONNECT
    from ottla.runtime.event_loop import run

    security = zookeeper_security(settings)
    if settings[ZOOKEEPER_CONNECT] is None:
        raise ConfigError("no ZooKeeper is named", hint="--zookeeper HOST:PORT/CHROOT, or --config with the settings")
    if security.digest is None or not security.sets_acl:
        raise ConfigError(
            "the nodes need an owner: zookeeper.digest is not set, or zookeeper.set.acl is false",
            hint="name the brokers' settings with --config, or set OTTLA_ZOOKEEPER_DIGEST",
        )
    count = run(_protect(settings))
    say(f"{counted(count, 'node')} of {settings[ZOOKEEPER_CONNECT]} belong to {security.digest.user}")


async def _protect(settings: BrokerSettings) -> int:
    from ottla.broker.tree.zookeeper_sessions import zookeeper_backend
    from ottla.coordination.zookeeper.protection import protect_tree
    from ottla.runtime.clock import SystemClock

    session = await zookeeper_backend(settings, SystemClock()).connect()
    try:
        return await protect_tree(session)
    finally:
        await session.close()
