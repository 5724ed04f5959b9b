"""`ottla cluster`: several brokers."""

from __future__ import annotations

from typing import Final

from ottla.cli.lazy_group import LazyGroup
from ottla.cli.verbs import CLUSTER_VERBS

command: Final = LazyGroup(
    "cluster",
    CLUSTER_VERBS,
    help="Run a cluster on this machine; show how a cluster is.",
    no_args_is_help=True,
    subcommand_metavar="VERB ...",
)
