"""The administration of groups: those of the brokers, and, where these share a ZooKeeper, those of its tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import default_bootstrap, flags, open_cluster, optional_bootstrap_flag
from ottla.cli.cluster.connection import (
    given_zookeeper_security,
    registered_brokers,
    zookeeper_of,
)
from ottla.cli.output import say
from ottla.model.errors import OttlaError
from ottla.model.identifiers import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.client.consumer_registry.group_admin import TreeGroupAdmin
    from ottla.client.groups.group_types import GroupOperations, ListedGroup
    from ottla.client.groups.groups import GroupAdmin
    from ottla.client.wire.cluster import Cluster


groups_argument: Final = click.argument("arguments", nargs=-1, metavar="GROUP...")
# Of verbs that have --all-groups.
all_or_groups_argument: Final = click.argument("arguments", nargs=-1, metavar="[GROUP...]")
group_option: Final = click.option("--group", "options", multiple=True, metavar="GROUP", help="The same as GROUP.")

# The states of all kinds of groups; only Apache Kafka lists dead ones.
_STATES: Final = {
    state.lower(): state
    for state in (
        "Stable",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Reconciling",
        "Dead",
    )
}


def states_named(texts: Iterable[str]) -> list[str]:
    """States of groups as the protocol writes them, from `stable` or `Empty,Stable`.  Raises UsageError."""
    found: list[str] = []
    for word in (word.strip() for text in texts for word in text.split(",")):
        state = _STATES.get(word.lower())
        if state is None:
            raise click.UsageError(f"--state is one of {', '.join(_STATES.values())}, not {word!r}.")
        found.append(state)
    return found


KINDS: Final = ("classic", "consumer", "tree")
_CLIENT_ID: Final = "ottla-group"
# One that was named may be slow; one that only the brokers know may be out of reach from here.
_NAMED_WITHIN_MS: Final = 6_000
_FOUND_WITHIN_MS: Final = 3_000


# `bootstrap` and `zookeeper`.
group_flags: Final = flags(
    optional_bootstrap_flag,
    click.option(
        "--zookeeper",
        metavar="HOST:PORT,.../CHROOT",
        help="The brokers' ZooKeeper: it has the groups of type tree, and knows the brokers.  [default: as they say]",
    ),
)


# `kind`: which group is meant where two have one name.
kind_flag: Final = click.option(
    "--type", "kind", type=click.Choice(KINDS), help="Which one, when groups of two types have this name."
)


class NoTree(OttlaError):
    """Groups of the tree cannot be looked at."""

    hint = "name the ZooKeeper and the chroot of the brokers: --zookeeper HOST:PORT/CHROOT"


class TwoGroups(OttlaError):
    """The brokers and the tree have a group of this name."""

    hint = "say which: --type tree, or --type classic (or consumer)"


class GroupAdmins(NamedTuple):
    """`tree` is None where brokers share no ZooKeeper, and where it cannot be reached: `problem` says why."""

    cluster: Cluster
    brokers: GroupAdmin
    tree: TreeGroupAdmin | None
    problem: str | None

    def list_groups(self, states: Sequence[str], kinds: Sequence[str]) -> list[ListedGroup]:
        found: list[ListedGroup] = []
        kafka_kinds = [kind for kind in kinds if kind != "tree"]
        if kafka_kinds or not kinds:
            listed = self.brokers.listing(states, kafka_kinds)
            found += listed.groups
            for partition, reason in listed.missing.items():
                say(f"note: groups of {OFFSETS_TOPIC}-{partition} are not shown: {reason}", err=True)
        if self.tree is not None:
            found += self.tree.list_groups(states, kinds)
        elif "tree" in kinds:
            self._require_tree()
        return sorted(found, key=lambda group: (group.group_id, group.kind))

    def admins_of(self, group_id: str, kind: str | None = None) -> list[GroupOperations]:
        """Those that have the group, of this kind if one is given."""
        found: list[GroupOperations] = []
        if kind != "tree" and self._is_at_brokers(group_id, kind):
            found.append(self.brokers)
        if kind == "tree":
            self._require_tree()
        if kind in (None, "tree") and self.tree is not None and self.tree.has(group_id):
            found.append(self.tree)
        return found

    def admin_of(self, group_id: str, kind: str | None = None) -> GroupOperations | None:
        """The one that has it.  Raises `TwoGroups`."""
        if kind is None and self.tree is None:
            # Its first request fails where there is no such group.
            return self.brokers
        found = self.admins_of(group_id, kind)
        if len(found) > 1:
            raise TwoGroups(f"two groups are named {group_id}: one at the brokers, and one in ZooKeeper")
        return found[0] if found else None

    def admin_that_has(self, group_id: str, kind: str | None) -> GroupOperations:
        """Raises `UnknownGroup`, `TwoGroups`."""
        from ottla.client.groups.groups import UnknownGroup

        admin = self.admin_of(group_id, kind)
        if admin is None:
            what = f"group {group_id}" if kind is None else f"a group {group_id} of type {kind}"
            raise UnknownGroup(f"{what} does not exist")
        return admin

    def admin_of_new(self, kind: str | None) -> GroupOperations:
        """The one that creates a group."""
        if kind != "tree":
            return self.brokers
        return self._require_tree()

    def note_what_is_missing(self) -> None:
        if self.problem is not None:
            say(f"note: groups of type tree are not shown: {self.problem}", err=True)

    def _is_at_brokers(self, group_id: str, kind: str | None) -> bool:
        from ottla.client.groups.groups import UnknownGroup

        try:
            found = self.brokers.describe(group_id)
        except UnknownGroup:
            return False
        return kind is None or found.kind in ("", kind)

    def _require_tree(self) -> TreeGroupAdmin:
        if self.tree is None:
            raise NoTree(self.problem or "these brokers share no ZooKeeper, so no group is of type tree")
        return self.tree


@contextmanager
def open_group_admins(bootstrap: str | None, zookeeper: str | None) -> Iterator[GroupAdmins]:
    """The brokers and their ZooKeeper; given one of them, the other is found by it.

    A ZooKeeper that was named must answer; one that the brokers named is left out if it does not.
    """
    from ottla.client.groups.groups import GroupAdmin

    with ExitStack() as stack:
        if zookeeper is not None:
            found = registered_brokers(zookeeper, _NAMED_WITHIN_MS)
            cluster = stack.enter_context(open_cluster(bootstrap or found, _CLIENT_ID))
            tree: TreeGroupAdmin | None = _open_tree(zookeeper, _NAMED_WITHIN_MS)
            problem = None
        else:
            cluster = stack.enter_context(open_cluster(bootstrap or default_bootstrap(), _CLIENT_ID))
            tree, problem = _found_tree(cluster)
        if tree is not None:
            stack.enter_context(tree)
        yield GroupAdmins(cluster, GroupAdmin(cluster), tree, problem)


def _found_tree(cluster: Cluster) -> tuple[TreeGroupAdmin | None, str | None]:
    from ottla.client.admin.admin import Admin

    zookeeper = zookeeper_of(cluster, Admin(cluster).describe_cluster().brokers)
    if not zookeeper:
        return None, None
    try:
        registered_brokers(zookeeper, _FOUND_WITHIN_MS)
        return _open_tree(zookeeper, _FOUND_WITHIN_MS), None
    except OttlaError as error:
        return None, str(error)


def _open_tree(zookeeper: str, within_ms: int) -> TreeGroupAdmin:
    from ottla.client.consumer_registry.group_admin import TreeGroupAdmin

    return TreeGroupAdmin(zookeeper, given_zookeeper_security(), within_ms)
