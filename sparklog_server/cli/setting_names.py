"""Shell completion of what needs no cluster: keys of settings (`KEY=` before a value), and profiles."""

from collections.abc import Iterable

import click

from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError


def topic_keys(_: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """Keys of the settings of topics."""
    from sparklog_server.config.topic_settings import topic_keys

    return _beginning(incomplete, topic_keys(), with_value=option.name != "deletions")


def client_keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Keys of the settings of clients."""
    names = (name.replace("_", ".") for name in ClientSettings.__struct_fields__)
    return _beginning(incomplete, names, with_value=True)


def resource_keys(context: click.Context, argument: click.Parameter, incomplete: str) -> list[str]:
    """Keys of the settings of what the options of `configs` select, by default of topics."""
    return _beginning(incomplete, _keys_of(context), with_value=argument.name == "assignments")


def broker_keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Keys of the settings of brokers."""
    from sparklog_server.config.settings import broker_keys

    return _beginning(incomplete, broker_keys(), with_value=True)


def profile_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Names of profiles."""
    from sparklog_server.cli.profiles import read_profiles

    try:
        return _beginning(incomplete, read_profiles().by_name, with_value=False)
    except SettingsError:
        return []


def _keys_of(context: click.Context) -> Iterable[str]:
    given = {kind for kind in ("broker", "group", "client-metrics") if context.meta.get(kind)}
    found: set[str] = set()
    if "broker" in given:
        from sparklog_server.config.settings import broker_keys

        found.update(broker_keys())
    if "group" in given:
        from sparklog_server.config.group_keys import GROUP_KEYS

        found.update(GROUP_KEYS)
    if "client-metrics" in given:
        from sparklog_server.config.client_metrics import CLIENT_METRICS_KEYS

        found.update(CLIENT_METRICS_KEYS)
    if context.meta.get("topic") or not given:
        from sparklog_server.config.topic_settings import topic_keys

        found.update(topic_keys())
    return found


def _beginning(incomplete: str, names: Iterable[str], *, with_value: bool) -> list[str]:
    return [f"{name}=" if with_value else name for name in sorted(names) if name.startswith(incomplete)]
