"""`ottla load` with all its verbs."""

from __future__ import annotations

from ottla.cli.pipeline.load import command
from ottla.cli.pipeline.load_service import serve

__all__ = ["command"]

command.add_command(serve)
