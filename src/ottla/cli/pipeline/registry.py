"""`ottla registry`: schemas for the records of topics."""

from __future__ import annotations

from typing import Final

from ottla.cli.lazy_group import LazyGroup
from ottla.cli.verbs import REGISTRY_VERBS

command: Final = LazyGroup(
    "registry",
    REGISTRY_VERBS,
    help="Serve schemas to Kafka's clients.",
    no_args_is_help=True,
    subcommand_metavar="VERB ...",
)
