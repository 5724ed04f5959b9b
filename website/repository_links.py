"""Links of a page that lead out of docs/: where their targets are on the site.

Pages are read on a git host as well, where a link is a path in the repository.  On the site docs/ is the root; Markdown
from elsewhere becomes a page below `repository/`, any other file a text that a browser shows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

_DOCS: Final = PurePosixPath("docs")
_OUTSIDE: Final = PurePosixPath("repository")
_LINK: Final = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_SCHEME: Final = re.compile(r"[a-z]+:")


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Where a file of the repository is in the sources of the site."""
    if path.is_relative_to(_DOCS):
        return path.relative_to(_DOCS)
    return _OUTSIDE / (path if path.suffix in (".md", ".txt") else f"{path}.txt")


def repository_path(path: PurePosixPath) -> PurePosixPath:
    """The reverse of `site_path`, for a page."""
    return path.relative_to(_OUTSIDE) if path.is_relative_to(_OUTSIDE) else _DOCS / path


def targets_of(markdown: str, path: PurePosixPath) -> set[PurePosixPath]:
    """The files of the repository that a page links to."""
    targets = {found["target"] for found in _LINK.finditer(markdown)}
    return {_resolved(target, path) for target in targets if _SCHEME.match(target) is None}


def with_site_links(markdown: str, path: PurePosixPath, is_directory: Callable[[PurePosixPath], bool]) -> str:
    """The text of the page at `path` of the repository, with links as the site has them.

    A link to a directory leads to its README.md, as on a git host.
    """

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if _SCHEME.match(target) is not None:
            return found.group()
        wanted = _resolved(target, path)
        wanted = wanted / "README.md" if is_directory(wanted) else wanted
        link = posixpath.relpath(site_path(wanted), site_path(path).parent)
        return f"]({link}{found['anchor'] or ''})"

    return _LINK.sub(replaced, markdown)


def _resolved(target: str, path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(path.parent / target))
