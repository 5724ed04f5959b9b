"""`ottla audit`: the counts of all tiers."""

from __future__ import annotations

from typing import Final

from ottla.cli.lazy_group import LazyGroup
from ottla.cli.verbs import AUDIT_VERBS

command: Final = LazyGroup(
    "audit",
    AUDIT_VERBS,
    help="Compare the counts of all tiers; wait until a topic is complete.",
    no_args_is_help=True,
    subcommand_metavar="VERB ...",
)
