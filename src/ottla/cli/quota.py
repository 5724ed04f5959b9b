"""`ottla quota`: how much users, clients and addresses may use of the brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ottla.cli.client_flags import bootstrap_flag, flags, open_cluster, output_flag
from ottla.cli.output import data_lines, say, table
from ottla.cli.verb_group import VerbGroup
from ottla.model.errors import OttlaError
from ottla.model.quotas import DEFAULT_NAME, EntityType, QuotaEntity, QuotaKind, check_entity, kind_of, quota_text

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster

_CLIENT_ID: Final = "ottla-quota"
_DEFAULT: Final = "<default>"
_NO_ENTITY: Final = "Name an entity: --user, --client-id, both of them, or --ip; or one of their defaults."

_Function: TypeAlias = Callable[..., None]


def _entity_flags(function: _Function) -> _Function:
    """`function` with the parts that were named as the parameter `parts`; those of a default have an empty name."""

    @wraps(function)
    def call(**given: Any) -> None:
        parts: dict[EntityType, str] = {}
        for entity_type in EntityType:
            parameter = entity_type.replace("-", "_")
            name, is_default = given.pop(parameter), given.pop(f"{parameter}_defaults")
            if is_default and name is not None:
                raise click.UsageError(f"Name --{entity_type} or its default, not both.")
            if name == DEFAULT_NAME:
                raise click.UsageError(f"The name of --{entity_type} is empty.")
            if is_default or name is not None:
                parts[entity_type] = DEFAULT_NAME if is_default else name
        function(parts=parts, **given)

    every = flags(
        click.option("--user", metavar="NAME", help="A user, with all clients together."),
        click.option("--user-defaults", is_flag=True, help="Each user without quotas."),
        click.option("--client-id", metavar="ID", help="A client, by its client.id; with --user, of that user."),
        click.option("--client-id-defaults", is_flag=True, help="Each client without quotas."),
        click.option("--ip", metavar="IP", help="An address."),
        click.option("--ip-defaults", is_flag=True, help="All addresses without a quota of connections."),
    )
    return every(call)


@click.group(name="quota", cls=VerbGroup)
def command() -> None:
    """Set, remove and list quotas: how much users, clients and addresses may use."""


@command.command(name="set")
@bootstrap_flag
@_entity_flags
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_quotas(bootstrap: str, parts: Mapping[EntityType, str], quotas: tuple[str, ...]) -> None:
    """Set quotas of an entity; its others stay.

    \b
    ottla quota set --user alice producer_byte_rate=1000000 consumer_byte_rate=5000000

    producer_byte_rate, consumer_byte_rate: bytes a second, at each broker.  request_percentage: of a broker's event
    loop.  controller_mutation_rate: partitions created and deleted a second.  connection_creation_rate (of --ip):
    connections a second.
    """
    entity = _entity(parts)
    changed = dict(_value(entity, text) for text in quotas)
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        _alter(cluster, entity, changed)
    say(f"set {', '.join(quotas)} of {_shown(entity)}")


@command.command()
@bootstrap_flag
@_entity_flags
@click.argument("names", nargs=-1, metavar="[NAME...]")
def remove(bootstrap: str, parts: Mapping[EntityType, str], names: tuple[str, ...]) -> None:
    """Remove quotas of an entity; without NAME all of them.

    \b
    ottla quota remove --user alice consumer_byte_rate
    """
    from ottla.client.admin.quotas import describe_quotas

    entity = _entity(parts)
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        if not names:
            names = tuple(name for each in describe_quotas(cluster, parts, strict=True) for name in each.values)
        kinds = [kind_of(entity, name) for name in names]
        if not kinds:
            raise OttlaError(f"{_shown(entity)} has no quotas", hint="`ottla quota list` shows those that are set")
        _alter(cluster, entity, dict.fromkeys(kinds))
    say(f"removed {', '.join(kinds)} of {_shown(entity)}")


@command.command(name="list")
@bootstrap_flag
@_entity_flags
@output_flag("One object for each entity; a part that is the default is empty, one that it does not have is null.")
def list_quotas(bootstrap: str, parts: Mapping[EntityType, str], as_data: bool) -> None:
    """List the quotas that are set; with flags, of the entities that have these parts."""
    from ottla.client.admin.quotas import describe_quotas

    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        found = sorted(describe_quotas(cluster, parts), key=lambda each: [part or "" for part in each.entity])
    if as_data:
        for each in found:
            user, client_id, ip = each.entity
            named = {"user": user, "client_id": client_id, "ip": ip}
            say(*data_lines({**named, "quotas": dict(sorted(each.values.items()))}))
        return
    rows = [
        (*("" if name is None else name or _DEFAULT for name in entity), name, f"{value:.15g}")
        for entity, values in found
        for name, value in sorted(values.items())
    ]
    say(*table(("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"), rows))


def _alter(cluster: Cluster, entity: QuotaEntity, changed: Mapping[QuotaKind, float | None]) -> None:
    from ottla.client.admin.quotas import alter_quotas

    alter_quotas(cluster, entity, changed)


def _entity(parts: Mapping[EntityType, str]) -> QuotaEntity:
    if not parts:
        raise click.UsageError(_NO_ENTITY)
    entity = QuotaEntity(*(parts.get(each) for each in EntityType))
    check_entity(entity)
    return entity


def _value(entity: QuotaEntity, text: str) -> tuple[QuotaKind, float]:
    name, is_pair, value_text = text.partition("=")
    if not is_pair:
        raise click.UsageError(f"Write KEY=VALUE, not {text!r}.")
    kind = kind_of(entity, name)
    try:
        value = float(value_text)
    except ValueError:
        raise OttlaError(f"{kind}: {value_text!r} is not a number") from None
    quota_text(kind, value)
    return kind, value


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{entity_type} {name or _DEFAULT}" for entity_type, name in entity.parts().items())
