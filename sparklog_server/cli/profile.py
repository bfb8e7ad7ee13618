"""`sparklog profile`: named client settings, so that no command has to repeat them."""

import os

import click

from sparklog.client.settings import ClientSettings
from sparklog.client.settings import is_secret as is_client_secret
from sparklog_server.cli.debug_secrets import is_secret
from sparklog_server.cli.option_values import pairs
from sparklog_server.cli.printing import as_json, print_json, print_table, report
from sparklog_server.cli.profiles import (
    Profiles,
    checked_name,
    read_profiles,
    with_absolute_paths,
    write_profiles,
)
from sparklog_server.cli.setting_names import profile_names

HIDDEN = "(hidden)"


@click.group()
def profile() -> None:
    """Create, select and show profiles: named client settings.

    The current profile applies to commands that name no broker by -b, SPARKLOG_BOOTSTRAP_SERVER or
    --command-config; --profile or SPARKLOG_PROFILE selects another. They are in
    ~/.config/sparklog/config.toml (XDG_CONFIG_HOME), which only its owner can read.
    """


@profile.command()
@click.argument("name")
@click.option(
    "--from",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Take settings from a client's file: .conf has librdkafka's names, .toml those of Python, any other "
    "is a Kafka properties file.",
)
@click.option("-b", "--bootstrap-server", metavar="HOST:PORT", help="Set bootstrap.servers.")
@click.option(
    "-X",
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a client setting by Kafka's name. Repeatable.",
)
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def create(
    name: str, file: str | None, bootstrap_server: str | None, assignments: tuple[str, ...], replace: bool
) -> None:
    """Create the profile NAME and make it the current one.

    A password given with -X stays in the history of the shell: put it into a file for --from.
    """
    checked_name(name)
    settings: dict[str, str] = {}
    if file is not None:
        from sparklog_server.cli.client_files import read_client_file

        settings = read_client_file(file)
    settings |= pairs(assignments, "--set")
    if bootstrap_server is not None:
        settings["bootstrap.servers"] = bootstrap_server
    if not settings:
        raise click.UsageError("a profile needs settings: give --from FILE, --bootstrap-server or --set")
    ClientSettings.from_kafka(settings)
    profiles = read_profiles()
    if name in profiles.by_name and not replace:
        raise click.ClickException(f"there is a profile {name!r} already; --replace replaces it")
    profiles.by_name[name] = with_absolute_paths(settings)
    profiles.current = name
    path = write_profiles(profiles)
    report(f"created profile {name} in {path}; it is the current profile")


@profile.command()
@click.argument("name", shell_complete=profile_names)
def use(name: str) -> None:
    """Make the profile NAME the current one."""
    profiles = read_profiles()
    profiles.settings_of(name)
    profiles.current = name
    write_profiles(profiles)
    report(f"{name} is the current profile")


@profile.command(name="list")
@as_json
def list_profiles(is_json: bool) -> None:
    """List the profiles; a star marks the current one."""
    profiles = read_profiles()
    if is_json:
        print_json(
            [
                {
                    "name": name,
                    "is_current": name == profiles.current,
                    "bootstrap_servers": settings.get("bootstrap.servers"),
                }
                for name, settings in sorted(profiles.by_name.items())
            ]
        )
        return
    print_table(
        ["current", "profile", "bootstrap servers"],
        [
            ["*" if name == profiles.current else None, name, settings.get("bootstrap.servers")]
            for name, settings in sorted(profiles.by_name.items())
        ],
    )
    if not profiles.by_name:
        report("there are no profiles; create one by `sparklog profile create NAME -b HOST:PORT`")


@profile.command()
@click.argument("name", required=False, shell_complete=profile_names)
@as_json
def show(name: str | None, is_json: bool) -> None:
    """Show the settings of a profile, of the current one by default; secrets are hidden."""
    profiles = read_profiles()
    shown = name or _current(profiles)
    settings = {key: _shown(key, value) for key, value in sorted(profiles.settings_of(shown).items())}
    if is_json:
        print_json({"name": shown, "is_current": shown == profiles.current, "settings": settings})
        return
    print_table(["setting", "value"], list(settings.items()))


def _current(profiles: Profiles) -> str:
    chosen = os.environ.get("SPARKLOG_PROFILE") or profiles.current
    if chosen is None:
        raise click.ClickException("no profile is current; select one by `sparklog profile use NAME`")
    return chosen


def _shown(name: str, value: str) -> str:
    return HIDDEN if is_secret(name) or is_client_secret(name) else value
