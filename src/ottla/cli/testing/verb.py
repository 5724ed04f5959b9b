"""`ottla testing`: a broker for tests in any language."""

from __future__ import annotations

from typing import Final

from ottla.cli.lazy_group import LazyGroup
from ottla.cli.verbs import TESTING_VERBS

command: Final = LazyGroup(
    "testing",
    TESTING_VERBS,
    help="Run a broker for tests, in any language; nothing is left when they have ended.",
    no_args_is_help=True,
    subcommand_metavar="VERB ...",
)
