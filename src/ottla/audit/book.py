"""The name that `ottla.audit.snapshot` had in earlier releases, for one more."""

from __future__ import annotations

import warnings

from ottla.audit.snapshot import AuditSnapshot

__all__ = ["AuditBook"]

warnings.warn(
    "ottla.audit.book is named ottla.audit.snapshot, and AuditBook AuditSnapshot; the next release is without the old "
    "names",
    DeprecationWarning,
    stacklevel=2,
)

AuditBook = AuditSnapshot
