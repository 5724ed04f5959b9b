"""`ottla config`: settings of topics, brokers and groups, as the brokers have them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ottla.cli.client_flags import assignments, bootstrap_flag, flags, open_cluster, output_flag
from ottla.cli.output import data_lines, say, table
from ottla.cli.verb_group import VerbGroup
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.nearest import nearest_name

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.configs import ConfigEntry, ConfigResource

_CLIENT_ID: Final = "ottla-config"
_HIDDEN: Final = "***"
_Function: TypeAlias = Callable[..., None]


def _resource_flags(function: _Function) -> _Function:
    """`function` with what was named as the parameter `resource`."""

    @wraps(function)
    def call(topic: str | None, broker_id: int | None, all_brokers: bool, group: str | None, **given: Any) -> None:
        from ottla.client.admin.configs import ConfigResource, ResourceType

        found = [
            *([] if topic is None else [ConfigResource(ResourceType.TOPIC, topic)]),
            *([] if broker_id is None else [ConfigResource(ResourceType.BROKER, str(broker_id))]),
            *([ConfigResource(ResourceType.BROKER, "")] if all_brokers else []),
            *([] if group is None else [ConfigResource(ResourceType.GROUP, group)]),
        ]
        if len(found) != 1:
            raise click.UsageError("Name one of --topic, --broker, --all-brokers and --group.")
        function(resource=found[0], **given)

    every = flags(
        click.option("--topic", metavar="TOPIC", help="Of this topic."),
        click.option("--broker", "broker_id", type=click.IntRange(min=0), metavar="ID", help="Of this broker."),
        click.option("--all-brokers", is_flag=True, help="Of all brokers together, which one's own win over."),
        click.option("--group", metavar="GROUP", help="Of this group of consumers."),
    )
    return every(call)


@click.group(name="config", cls=VerbGroup)
def command() -> None:
    """Show, set and delete settings of topics, brokers and groups, while they run."""


@command.command()
@_resource_flags
@bootstrap_flag
@click.argument("names", nargs=-1, metavar="[KEY...]")
@click.option(
    "--all", "shows_all", is_flag=True, help="Also those that have their defaults, or are of a broker's file."
)
@output_flag("One object for each setting.")
def show(resource: ConfigResource, bootstrap: str, names: tuple[str, ...], shows_all: bool, as_data: bool) -> None:
    """Show the settings that a topic, a broker or a group has of its own; with KEY these, with --all every one.

    \b
    ottla config show --topic clicks
    ottla config show --broker 1 --all
    """
    from ottla.client.admin.admin import Admin

    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        admin = Admin(cluster)
        entries = admin.describe_configs(resource)
        if names:
            _check_known(resource, _settings(admin, resource, entries), names)
    shown = [entry for entry in sorted(entries.values()) if _is_shown(entry, names, shows_all)]
    if as_data:
        for entry in shown:
            facts = {"value": entry.value, "source": entry.source.name.lower()}
            flags_of = {"is_read_only": entry.is_read_only, "is_sensitive": entry.is_sensitive}
            of = {"resource": resource.type.name.lower(), "name": resource.name, "key": entry.name}
            say(*data_lines({**of, **facts, **flags_of}))
        return
    rows = [(each.name, _HIDDEN if each.is_sensitive else each.value, each.source.name.lower()) for each in shown]
    say(*table(("KEY", "VALUE", "SOURCE"), rows))


def _is_shown(entry: ConfigEntry, names: tuple[str, ...], shows_all: bool) -> bool:
    from ottla.client.admin.configs import ConfigSource

    of_file = {ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER, ConfigSource.UNKNOWN}
    return entry.name in names if names else shows_all or entry.source not in of_file


@command.command(name="set")
@_resource_flags
@bootstrap_flag
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_settings(resource: ConfigResource, bootstrap: str, settings: tuple[str, ...]) -> None:
    """Set settings; the others stay.

    \b
    ottla config set --topic clicks retention.ms=3600000
    """
    changes = assignments(settings, "The argument")
    _alter(resource, bootstrap, changes)
    say(f"set {', '.join(changes)} of {_shown(resource)}")


@command.command()
@_resource_flags
@bootstrap_flag
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def delete(resource: ConfigResource, bootstrap: str, names: tuple[str, ...]) -> None:
    """Delete settings: the defaults hold again.

    \b
    ottla config delete --topic clicks retention.ms
    """
    _alter(resource, bootstrap, dict.fromkeys(names))
    say(f"deleted {', '.join(names)} of {_shown(resource)}")


def _alter(resource: ConfigResource, bootstrap: str, values: Mapping[str, str | None]) -> None:
    """None deletes."""
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.configs import ConfigChange, ConfigOperation

    changes = [
        ConfigChange(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
        for name, value in values.items()
    ]
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        admin = Admin(cluster)
        check_changes(resource, _settings(admin, resource, admin.describe_configs(resource)), values)
        admin.alter_configs(resource, changes)


def _settings(admin: Admin, resource: ConfigResource, entries: Mapping[str, ConfigEntry]) -> dict[str, ConfigEntry]:
    """Those that it can have, by name.  `entries`: its own, which of all brokers are those alone that are set."""
    if resource.name:
        return dict(entries)
    node_id = min(admin.describe_cluster().brokers)
    return {**admin.describe_configs(resource._replace(name=str(node_id))), **entries}


def check_changes(
    resource: ConfigResource, settings: Mapping[str, ConfigEntry], values: Mapping[str, str | None]
) -> None:
    """`settings`: those that the resource can have.  Raises OttlaError for a deletion of another one, which brokers
    accept, and ConfigError for a secret.
    """
    from ottla.client.wire.destination.profiles import is_secret

    _check_known(resource, settings, [name for name, value in values.items() if value is None])
    for name, value in values.items():
        # The name of a listener's setting, which has a prefix, is in no list before it is set.
        is_sensitive = is_secret(name) or (name in settings and settings[name].is_sensitive)
        if value is not None and is_sensitive:
            raise ConfigError(
                f"{name}: every user of this machine could read it in the list of processes",
                hint="set it in the broker's file",
            )


def _check_known(resource: ConfigResource, known: Collection[str], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"did you mean {nearest}?" if nearest else "`ottla config show --all` shows them all"
            raise OttlaError(f"{_shown(resource)} {_has(resource)} no setting {name!r}", hint=hint)


def _has(resource: ConfigResource) -> str:
    return "has" if resource.name else "have"


def _shown(resource: ConfigResource) -> str:
    return str(resource) if resource.name else "all brokers"
