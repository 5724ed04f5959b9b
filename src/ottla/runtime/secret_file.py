"""A file with a password: only its owner may read it."""

from __future__ import annotations

import os
import stat
from typing import Final

from ottla.model.errors import ConfigError

_PASSWORD_BYTES_MAX: Final = 4_096
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


def read_secret_file(path: str, setting_name: str) -> str:
    """The first line.  Raises `ConfigError` that names the setting, also for a file that others can read."""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _READABLE_BY_OTHERS:
                raise ConfigError(f"{setting_name}: others can read {path}", hint=f"chmod 600 {path}")
            return file.readline(_PASSWORD_BYTES_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting_name}: cannot read {path}: {error}") from None
