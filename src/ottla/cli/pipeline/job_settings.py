"""The settings of a pipeline's verb: its flags, and a table of a TOML file that has the same names.

    [load]
    bootstrap-server = "localhost:9092"
    target = "s3://lake/events"

    [load.compact]                      # of the verb `ottla load compact`
    target-file-bytes = 268435456

A flag that is given wins over the file.  A verb inside of a group takes what its own table does not have from the
group's table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import click

from ottla.cli.client_flags import DURATION, Flag, RenamedOption
from ottla.cli.config_file import CONFIG_FILE_BYTES_MAX, CONFIG_FILE_HINT
from ottla.model.errors import ConfigError
from ottla.model.nearest import nearest_name
from ottla.runtime.text_file import read_text_file

# Flags with this metavar may be repeated; in the file they are a table.
KEY_VALUE: Final = "KEY=VALUE"
master_flag: Final = click.option(
    "--master", metavar="URL", help="Where Spark runs.  [default: as spark-submit says, else local[*]]"
)
spark_flag: Final = click.option(
    "--spark", "settings", multiple=True, metavar=KEY_VALUE, help="A setting of Spark; may be repeated."
)
_ABOUT_FLAGS: Final = frozenset({"help", "config"})


def every_flag(help: str) -> Flag:
    """The flag --every of a verb that repeats; `duration_ms` reads it."""
    return click.option("--every", metavar=DURATION, help=help)


def config_flag(*verbs: str, formerly: str | None = None) -> Flag:
    """The flag --config of a verb: `config_flag("load")`, `config_flag("dead-letter", "replay")`.

    `formerly`: the verb's name of earlier releases, as which the file may have its table.  It is above the verb's
    other flags.  Each of them can be given in the file, a required one too.
    """

    def read(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
        if path is not None:
            given = job_settings(path, verbs, context.command, formerly)
            context.default_map = {**(context.default_map or {}), **given}

    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        is_eager=True,
        expose_value=False,
        callback=read,
        help=f"Settings: flags' names and values in the table [{'.'.join(verbs)}].",
    )


def job_settings(
    path: Path, verbs: Sequence[str], command: click.Command, formerly: str | None = None, *, inherits: bool = True
) -> dict[str, object]:
    """The file's values for a command's parameters, by parameter.  Raises `ConfigError`.

    `inherits`: also those of the tables above the command's own.
    """
    known = _parameters(command)
    found: dict[str, object] = {}
    document = _document(path)
    if formerly is not None and _has_table(document, former := (*verbs[:-1], formerly)):
        verbs = former
    tables = list(_tables(document, path, verbs))
    for table_name, table in tables:
        is_own = table_name == ".".join(verbs)
        if not is_own and not inherits:
            continue
        for key, value in table.items():
            parameter = known.get(_flag_name(key))
            if parameter is not None:
                assert parameter.name is not None
                found[parameter.name] = _value(parameter, value, f"{path}: [{table_name}] {key}")
            elif is_own and not isinstance(value, dict):  # a table is another verb's
                raise _unknown(path, table_name, key, known)
    return found


def named_tables(path: Path, verbs: Sequence[str]) -> list[str]:
    """The names of the tables below one, as the file has them: `clicks` of [load.tables.clicks].

    Raises `ConfigError` where there is none.
    """
    table: object = _document(path)
    for name in verbs:
        table = table.get(name) if isinstance(table, Mapping) else None
    names = [name for name, value in table.items() if isinstance(value, dict)] if isinstance(table, Mapping) else []
    if not names:
        wanted = ".".join((*verbs, "NAME"))
        raise ConfigError(f"{path} has no table [{wanted}]", hint=f"write [{wanted}] and the settings below it")
    return names


def check_shared_table(path: Path, name: str, commands: Iterable[click.Command], tables: Iterable[str]) -> None:
    """Of a group, whose table has what its verbs share, and theirs.  Raises `ConfigError` for a key of none of them."""
    known = {key: parameter for command in commands for key, parameter in _parameters(command).items()}
    names = {**known, **dict.fromkeys(tables)}
    table = _document(path).get(name)
    for key in table if isinstance(table, Mapping) else ():
        if _flag_name(key) not in names:
            raise _unknown(path, name, key, names)


def _document(path: Path) -> dict[str, object]:
    content = read_text_file(path, CONFIG_FILE_BYTES_MAX, CONFIG_FILE_HINT)
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: {error}", hint='write key = value; texts in quotes: target = "/data/lake"'
        ) from error


def _has_table(document: Mapping[str, object], verbs: Sequence[str]) -> bool:
    table: object = document
    for name in verbs:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table is not None


def _tables(
    document: Mapping[str, object], path: Path, verbs: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The group's table before the verb's own, so that its values are replaced by the verb's."""
    table: object = document
    is_found = False
    for above, name in pairwise(["", *(".".join(verbs[: depth + 1]) for depth in range(len(verbs)))]):
        assert isinstance(table, Mapping)
        table = table.get(name.removeprefix(f"{above}."))
        if table is None:
            break
        if not isinstance(table, Mapping):
            raise ConfigError(f"{path}: {name} is no table", hint=f"write [{name}] and the settings below it")
        is_found = True
        yield name, table
    if not is_found:
        names = [name for name, value in document.items() if isinstance(value, dict)]
        nearest = nearest_name(verbs[0], names)
        has = f"did you mean [{nearest}]?" if nearest else f"it has {', '.join(map(repr, document)) or 'nothing'}"
        raise ConfigError(f"{path} has no table [{'.'.join(verbs)}]", hint=f"write [{verbs[0]}]; {has}")


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """By each long spelling: `--bootstrap-server` is `bootstrap-server`, and so is an argument's name."""
    names: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if parameter.name in _ABOUT_FLAGS or (isinstance(parameter, click.Option) and parameter.hidden):
            continue
        spellings = parameter.opts if isinstance(parameter, click.Option) else [parameter.name or ""]
        if isinstance(parameter, RenamedOption):
            spellings = [*spellings, *parameter.formerly]
        longest = max(spellings, key=len)
        for spelling in spellings:
            if spelling is longest or spelling.startswith("--"):
                names[_flag_name(spelling.lstrip("-"))] = parameter
    return names


def _flag_name(key: str) -> str:
    return key.replace("_", "-").lower()


def _unknown(path: Path, table: str, key: str, known: Iterable[str]) -> ConfigError:
    nearest = nearest_name(_flag_name(key), known)
    hint = f"did you mean {nearest!r}?" if nearest else f"known: {', '.join(sorted(known))}"
    return ConfigError(f"{path}: [{table}] has the unknown key {key!r}", hint=hint)


def _value(parameter: click.Parameter, value: object, where: str) -> object:
    """The value as click takes it; checked here, so that an error names the file and not a flag that was not given."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"{where} is {value!r}", hint="write true or false")
        return value
    if isinstance(value, dict) and parameter.metavar == KEY_VALUE:
        return [f"{name}={_text(each, f'{where}.{name}')}" for name, each in value.items()]
    if parameter.multiple or parameter.nargs == -1:
        values = value if isinstance(value, list) else [value]
        return [_one_value(parameter, each, where) for each in values]
    return _one_value(parameter, value, where)


def _one_value(parameter: click.Parameter, value: object, where: str) -> object:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    wants_number = isinstance(parameter.type, (type(click.INT), type(click.FLOAT)))
    if wants_number and not is_number:
        raise ConfigError(f"{where} is {value!r}", hint="write a number, without quotes")
    if isinstance(parameter.type, type(click.INT)) and not isinstance(value, int):
        raise ConfigError(f"{where} is {value!r}", hint="write a whole number")
    if not wants_number and not isinstance(value, str):
        raise ConfigError(f"{where} is {value!r}", hint="write a text, in quotes")
    try:
        parameter.type.convert(value, parameter, None)
    except click.BadParameter as error:
        raise ConfigError(f"{where}: {error.message}", hint="correct the value") from None
    return value


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(f"{where} is a {type(value).__name__}", hint="write a text, a number, true or false")
