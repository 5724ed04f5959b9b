"""`ottla profile`: named clusters, with their addresses and security settings, in the user's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ottla.cli.client_flags import assignments, complete_profiles, output_flag
from ottla.cli.output import data_lines, say, table
from ottla.cli.verb_group import VerbGroup
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.destination.destination import ADDRESS_VARIABLES, PROFILE_VARIABLE, Given
from ottla.client.wire.destination.found import find_destination
from ottla.client.wire.destination.profiles import (
    BOOTSTRAP,
    Profile,
    ProfileError,
    ProfileFolder,
    is_secret,
    profiles_folder,
    with_absolute_paths,
)
from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties
from ottla.model.errors import ConfigError, OttlaError
from ottla.security.protocol import SecurityProtocol

_HIDDEN: Final = "***"
_PROTOCOL: Final = "security.protocol"
_name_argument: Final = click.argument("name", metavar="NAME")


@click.group(name="profile", cls=VerbGroup)
def command() -> None:
    """Name clusters with their addresses and logins, and choose the one that verbs connect to.

    Each profile is a client.properties file that only you can read, in ~/.config/ottla/profiles.  A verb connects as
    the first of these says: --bootstrap-server, --profile, OTTLA_BOOTSTRAP_SERVERS, KAFKA_BOOTSTRAP_SERVERS,
    OTTLA_PROFILE, the profile in use, the cluster in ./ottla-cluster, localhost:9092.
    """


@command.command()
@_name_argument
@click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    metavar="HOST:PORT,...",
    help="Its brokers.  [default: bootstrap.servers of --command-config]",
)
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Copy TLS and login from this client.properties file.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting by its name there; may be repeated."
)
@click.option("--replace", is_flag=True, help="Replace the profile of this name.")
@click.option("--no-use", is_flag=True, help="Do not use it from now on.")
def create(
    name: str,
    bootstrap: str | None,
    command_config: Path | None,
    settings: tuple[str, ...],
    replace: bool,
    no_use: bool,
) -> None:
    """Create a profile, and use it from now on.

    \b
    ottla profile create test -b test:9092
    ottla profile create live -b live:9093 --command-config client.properties
    """
    folder = _folder()
    path = folder.path_of(name)
    if path.exists() and not replace:
        raise ProfileError(f"the profile {name} exists already", hint="pass --replace, or choose another name")
    of_file = {} if command_config is None else read_client_properties(command_config)
    properties = new_properties(bootstrap, of_file, assignments(settings, "--set"), Path.cwd())
    security_of_properties(properties, os.environ)
    say(f"created profile {name}: {folder.write(name, properties)}")
    if not no_use:
        folder.use(name)
        say(f"using profile {name}, for {properties[BOOTSTRAP]}")
        _note_what_hides(name)


def new_properties(
    bootstrap: str | None, of_file: Mapping[str, str], settings: Mapping[str, str], directory: Path
) -> dict[str, str]:
    """Those of a profile; flags win over the file.  Raises ConfigError and BadAddress."""
    for name in settings:
        if is_secret(name):
            raise ConfigError(
                f"--set {name}: every user of this machine could read it in the list of processes",
                hint=f"write it to the file of --command-config, or name a file that holds it, as {name}.file",
            )
    properties = with_absolute_paths({**of_file, **settings}, directory)
    addresses = bootstrap if bootstrap is not None else properties.get(BOOTSTRAP)
    if not addresses:
        raise click.UsageError("Name the brokers: --bootstrap-server HOST:PORT,...")
    parse_bootstrap(addresses)
    return {BOOTSTRAP: addresses, **{key: text for key, text in properties.items() if key != BOOTSTRAP}}


@command.command()
@click.argument("name", metavar="NAME", required=False, shell_complete=complete_profiles)
@click.option("--none", "uses_none", is_flag=True, help="Use none from now on.")
def use(name: str | None, uses_none: bool) -> None:
    """Use a profile from now on, in all terminals.

    \b
    ottla profile use live
    """
    if (name is None) != uses_none:
        raise click.UsageError("Name a profile, or give --none.")
    folder = _folder()
    folder.use(name)
    if name is None:
        say("using no profile")
        return
    say(f"using profile {name}, for {folder.read(name).bootstrap}")
    _note_what_hides(name)


@command.command(name="list")
@output_flag("One object for each profile.")
def list_profiles(as_data: bool) -> None:
    """List the profiles; the one in use has a star."""
    folder = _folder()
    in_use = folder.in_use()
    rows: list[tuple[str, str, str | None, str | None, str | None]] = []
    for name in folder.names():
        mark = "*" if name == in_use else ""
        try:
            found = folder.read(name)
            rows.append((mark, name, found.bootstrap, _protocol(found), None))
        except OttlaError as error:
            rows.append((mark, name, None, None, str(error)))
    if as_data:
        for mark, name, bootstrap, protocol, problem in rows:
            facts = {"profile": name, "is_in_use": bool(mark), "bootstrap": bootstrap, "security_protocol": protocol}
            say(*data_lines({**facts, "problem": problem}))
        return
    say(*table(("USED", "PROFILE", "BOOTSTRAP-SERVERS", "SECURITY"), [row[:4] for row in rows]))
    for _, _, _, _, problem in rows:
        if problem is not None:
            say(f"note: {problem}", err=True)


@command.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_profiles)
@output_flag()
def show(name: str | None, as_data: bool) -> None:
    """Show the settings of a profile, without its secrets; without NAME those of the one in use.

    \b
    ottla profile show live
    """
    folder = _folder()
    chosen = name or folder.in_use()
    if chosen is None:
        found = find_destination(Given())
        raise ProfileError(
            "no profile is in use", hint=f"verbs connect to {found.bootstrap}; the address is {found.origin}"
        )
    profile = folder.read(chosen)
    shown = {key: _HIDDEN if is_secret(key) else text for key, text in profile.properties.items()}
    if as_data:
        is_in_use = folder.in_use() == chosen
        say(*data_lines({"profile": chosen, "is_in_use": is_in_use, "path": str(profile.path), "properties": shown}))
        return
    say(f"profile {chosen}: {profile.path}", *(f"{key}={text}" for key, text in shown.items()))


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_profiles)
def delete(names: tuple[str, ...]) -> None:
    """Delete profiles.

    \b
    ottla profile delete test
    """
    folder = _folder()
    for name in names:
        folder.delete(name)
        say(f"deleted profile {name}")


def _folder() -> ProfileFolder:
    return ProfileFolder(profiles_folder(os.environ))


def _protocol(profile: Profile) -> str:
    return profile.properties.get(_PROTOCOL, SecurityProtocol.PLAINTEXT)


def _note_what_hides(name: str) -> None:
    """The environment wins over a profile in use."""
    for variable in (*ADDRESS_VARIABLES, PROFILE_VARIABLE):
        text = os.environ.get(variable)
        if text and not (variable == PROFILE_VARIABLE and text == name):
            say(f"note: here {variable} is set, which wins: {text}", err=True)
            return
