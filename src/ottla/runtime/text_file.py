"""Files of text that a user names: settings, offsets."""

from __future__ import annotations

from pathlib import Path

from ottla.model.errors import ConfigError


def read_text_file(path: Path, bytes_max: int, hint: str) -> str:
    """The text, without the mark that some editors put before it (U+FEFF): that would be a part of the first name.

    Raises `ConfigError`, with `hint` where the file is not what it should be.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="name a file that you may read") from error
    if len(data) > bytes_max:
        raise ConfigError(f"{path} is larger than {bytes_max} bytes", hint=hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}", hint=hint) from error
