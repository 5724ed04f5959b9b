"""`ottla acl`: add, remove and list access rules, with the flags of Kafka's `kafka-acls`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ottla.cli.client_flags import bootstrap_flag, flags, open_cluster, output_flag
from ottla.cli.output import data_lines, raise_together, say, table
from ottla.cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from ottla.security.acl import AccessEntry, Acl, AclFilter, Operation, PatternType, ResourceType

_Function: TypeAlias = Callable[..., None]

_EVERY_HOST: Final = "*"
_PATTERNS: Final = ("literal", "prefixed")
_FILTER_PATTERNS: Final = (*_PATTERNS, "match", "any")


@dataclass(frozen=True, slots=True)
class Resources:
    """The names that were given, by type."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    cluster: bool

    def named(self) -> list[tuple[ResourceType, str]]:
        from ottla.security.acl import CLUSTER_NAME, ResourceType

        return [
            *((ResourceType.TOPIC, name) for name in self.topics),
            *((ResourceType.GROUP, name) for name in self.groups),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else []),
        ]


@dataclass(frozen=True, slots=True)
class Rule:
    """Whom a rule is for, and what it is about."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    denied_hosts: tuple[str, ...]
    operations: tuple[str, ...]
    producer: bool
    consumer: bool
    idempotent: bool


def _gathering(kind: type[Resources] | type[Rule], parameter: str, function: _Function) -> _Function:
    """`function` with the values of the flags that are fields of `kind` as one parameter."""

    @wraps(function)
    def call(**given: Any) -> None:
        gathered = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        function(**{parameter: gathered}, **given)

    return call


def _resource_flags(function: _Function) -> _Function:
    every = flags(
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="An id; * is any."),
        click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; * is every group."),
        click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; * is every topic."),
    )
    return every(_gathering(Resources, "resources", function))


def _rule_flags(function: _Function) -> _Function:
    every = flags(
        click.option(
            "--idempotent", is_flag=True, help="With --producer, for brokers before Kafka 2.8: on the cluster."
        ),
        click.option(
            "--consumer",
            is_flag=True,
            help="What a consumer needs: Read and Describe on the topics, Read on the groups.",
        ),
        click.option(
            "--producer", is_flag=True, help="What a producer needs: Write, Describe and Create on the topics."
        ),
        click.option(
            "--operation", "operations", multiple=True, metavar="OPERATION", help="Such as Read.  [default: All]"
        ),
        click.option("--deny-host", "denied_hosts", multiple=True, metavar="IP", help="Of --deny-principal; else any."),
        click.option(
            "--allow-host", "allowed_hosts", multiple=True, metavar="IP", help="Of --allow-principal; else any."
        ),
        click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="Deny it."),
        click.option(
            "--allow-principal", "allowed", multiple=True, metavar="User:NAME", help="Allow it; User:* is everyone."
        ),
    )
    return every(_gathering(Rule, "rule", function))


@click.group(name="acl", cls=VerbGroup)
def command() -> None:
    """Add, remove and list access rules (ACLs)."""


@command.command()
@bootstrap_flag
@_resource_flags
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(_PATTERNS, case_sensitive=False),
    default="literal",
    help="prefixed: all resources whose names start with NAME.",
)
@_rule_flags
def add(bootstrap: str, resources: Resources, pattern: str, rule: Rule) -> None:
    """Add access rules; one that exists already is no error.

    \b
    ottla acl add --allow-principal User:alice --producer --topic clicks
    ottla acl add --allow-principal User:bob --consumer --topic clicks --group billing
    """
    from ottla.client.admin.access import create_acls
    from ottla.security.acl import Acl, ResourcePattern, check_acl

    entries = _entries(rule)
    if not entries:
        raise click.UsageError("Name a principal: --allow-principal or --deny-principal User:NAME.")
    pattern_type = _pattern_of(pattern)
    acls = list(
        dict.fromkeys(
            Acl(ResourcePattern(resource_type, _literal_cluster(resource_type, pattern_type), name), each)
            for resource_type, name, operation in _rights(resources, rule)
            for each in (entry._replace(operation=operation) for entry in entries)
        )
    )
    for acl in acls:
        check_acl(acl)
    with open_cluster(bootstrap, "ottla-acl") as connected:
        outcomes = create_acls(connected, acls)
    for acl, refusal in outcomes.items():
        if refusal is None:
            say(f"added: {acl}")
    raise_together([refusal for refusal in outcomes.values() if refusal is not None])


@command.command()
@bootstrap_flag
@_resource_flags
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(_FILTER_PATTERNS, case_sensitive=False),
    default="literal",
    help="match: also the rules of * and of prefixes that apply to NAME; any: each of this NAME.",
)
@_rule_flags
@click.option("--force", is_flag=True, help="Without a principal: remove the rules of all principals.")
def remove(bootstrap: str, resources: Resources, pattern: str, rule: Rule, *, force: bool) -> None:
    """Remove access rules: those with exactly these principals, hosts and operations.

    \b
    ottla acl remove --allow-principal User:alice --producer --topic clicks
    """
    from ottla.client.admin.access import delete_acls
    from ottla.security.acl import AclFilter

    entries = _entries(rule)
    pattern_type = _pattern_of(pattern)
    filters: list[AclFilter] = []
    if entries:
        filters = [
            AclFilter(
                resource_type,
                name,
                _literal_cluster(resource_type, pattern_type),
                entry.principal,
                entry.host,
                operation,
                entry.permission,
            )
            for resource_type, name, operation in _rights(resources, rule)
            for entry in entries
        ]
    else:
        if not force:
            raise click.UsageError(
                "Name a principal (--allow-principal, --deny-principal), or remove the rules of all with --force."
            )
        if not resources.named():
            raise click.UsageError(_NO_RESOURCE)
        filters = [
            AclFilter(resource_type, name, _literal_cluster(resource_type, pattern_type))
            for resource_type, name in resources.named()
        ]
    with open_cluster(bootstrap, "ottla-acl") as connected:
        deleted = delete_acls(connected, filters)
    for acl in dict.fromkeys(deleted):
        say(f"removed: {acl}")
    if not deleted:
        say("no rule matches", err=True)


@command.command(name="list")
@bootstrap_flag
@_resource_flags
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(_FILTER_PATTERNS, case_sensitive=False),
    default="match",
    help="match: all rules that apply to NAME.",
    show_default=True,
)
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Only the rules of this principal.")
@output_flag("One object for each rule.")
def list_acls(
    bootstrap: str, resources: Resources, pattern: str, principals: tuple[str, ...], *, as_data: bool
) -> None:
    """Show access rules: all, or those of the named resources and principals.

    \b
    ottla acl list --topic clicks
    """
    from ottla.client.admin.access import describe_acls
    from ottla.security.acl import AclFilter

    pattern_type = _pattern_of(pattern)
    filters = [AclFilter(kind, name, pattern_type) for kind, name in resources.named()] or [AclFilter()]
    found: dict[Acl, None] = {}
    with open_cluster(bootstrap, "ottla-acl") as connected:
        for wanted in filters:
            for principal in principals or (None,):
                found.update(dict.fromkeys(describe_acls(connected, wanted._replace(principal=principal))))
    rows = [_row(acl) for acl in sorted(found)]
    if as_data:
        for row in rows:
            say(*data_lines(dict(zip(COLUMNS, row, strict=True))))
    elif rows:
        say(*table([column.upper() for column in COLUMNS], rows))


COLUMNS: Final = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
_NO_RESOURCE: Final = "Name a resource: --topic, --group, --transactional-id or --cluster."


def _row(acl: Acl) -> tuple[str, ...]:
    pattern, entry = acl
    return (
        pattern.resource_type.label,
        pattern.name,
        pattern.pattern_type.label,
        entry.principal,
        entry.host,
        entry.operation.label,
        entry.permission.label,
    )


def _entries(rule: Rule) -> list[AccessEntry]:
    """For every principal and host; the operation comes with the resource."""
    from ottla.security.acl import AccessEntry, Operation, Permission

    if (rule.allowed_hosts and not rule.allowed) or (rule.denied_hosts and not rule.denied):
        raise click.UsageError("--allow-host goes with --allow-principal, --deny-host with --deny-principal.")
    return [
        AccessEntry(principal, host, Operation.ALL, permission)
        for principals, hosts, permission in (
            (rule.allowed, rule.allowed_hosts, Permission.ALLOW),
            (rule.denied, rule.denied_hosts, Permission.DENY),
        )
        for principal in principals
        for host in hosts or (_EVERY_HOST,)
    ]


def _rights(resources: Resources, rule: Rule) -> list[tuple[ResourceType, str, Operation]]:
    """Each resource with each operation on it."""
    from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType, from_label

    if not (rule.producer or rule.consumer):
        if rule.idempotent:
            raise click.UsageError("--idempotent goes with --producer.")
        named = resources.named()
        if not named:
            raise click.UsageError(_NO_RESOURCE)
        try:
            wanted = [from_label(Operation, each) for each in rule.operations] or [Operation.ALL]
        except ValueError as error:
            raise click.UsageError(f"--operation: {error}.") from error
        return [(resource_type, name, operation) for resource_type, name in named for operation in wanted]
    if rule.operations:
        raise click.UsageError("--producer and --consumer have their own operations: leave --operation out.")
    if not resources.topics:
        raise click.UsageError("--producer and --consumer need a --topic.")
    if rule.consumer and not resources.groups:
        raise click.UsageError("--consumer needs a --group.")
    rights: list[tuple[ResourceType, str, Operation]] = []
    if rule.producer:
        of_topic = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        rights += [(ResourceType.TOPIC, name, each) for name in resources.topics for each in of_topic]
        of_id = (Operation.WRITE, Operation.DESCRIBE)
        rights += [
            (ResourceType.TRANSACTIONAL_ID, name, each) for name in resources.transactional_ids for each in of_id
        ]
        if rule.idempotent:
            rights.append((ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
    if rule.consumer:
        of_read_topic = (Operation.READ, Operation.DESCRIBE)
        rights += [(ResourceType.TOPIC, name, each) for name in resources.topics for each in of_read_topic]
        rights += [(ResourceType.GROUP, name, Operation.READ) for name in resources.groups]
    return rights


def _pattern_of(text: str) -> PatternType:
    from ottla.security.acl import PatternType, from_label

    return from_label(PatternType, text)


def _literal_cluster(resource_type: ResourceType, pattern_type: PatternType) -> PatternType:
    """There is one cluster: prefixes of its name are for nothing."""
    from ottla.security.acl import PatternType, ResourceType

    is_prefix = resource_type is ResourceType.CLUSTER and pattern_type is PatternType.PREFIXED
    return PatternType.LITERAL if is_prefix else pattern_type
