"""Files with passwords, keys and tokens: only their owner may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ottla.model.errors import ConfigError

_PASSWORD_BYTES_MAX: Final = 4_096
_OWNER_ONLY: Final = 0o600
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


def read_secret_file(path: str, setting_name: str) -> str:
    """The first line.  Raises `ConfigError` that names the setting, also for a file that others can read."""
    return _read(path, setting_name, _PASSWORD_BYTES_MAX, is_line=True).rstrip("\r\n")


def read_secret_text(path: str, name: str, bytes_max: int) -> str:
    """All of it.  Raises `ConfigError` that names `name`, also for a file that others can read."""
    text = _read(path, name, bytes_max + 1)
    if len(text.encode()) > bytes_max:
        raise ConfigError(f"{name}: {path} is larger than {bytes_max} bytes", hint="is it the right file?")
    return text


def write_secret_file(path: Path, text: str) -> None:
    """A new file, or none.  Raises `OSError`, for one that exists too."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
        except BaseException:
            path.unlink()
            raise


def _read(path: str, name: str, bytes_max: int, *, is_line: bool = False) -> str:
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _READABLE_BY_OTHERS:
                raise ConfigError(f"{name}: others can read {path}", hint=f"chmod 600 {path}")
            return (file.readline(bytes_max) if is_line else file.read(bytes_max)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot read {path}: {error}") from None
