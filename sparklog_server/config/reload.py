"""The settings file of a running broker, read again: what may change while it runs changes, and the rest
waits for a restart.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .keys import Update
from .layers import Layers, dynamic_key
from .load import load
from .settings import BrokerSettings


class Reloaded(NamedTuple):
    """The static settings from now on. `changed` are keys of the file with a new value, `overridden` those of
    them that a dynamic setting hides, and `needs_restart` the changed keys that stay as they are.
    """

    settings: BrokerSettings
    changed: tuple[str, ...]
    overridden: tuple[str, ...]
    needs_restart: tuple[str, ...]


class SettingsFile:
    """The sources of a broker's settings at its start: a file, and assignments that override it."""

    def __init__(self, path: str, assignments: Sequence[str], *, is_insecure_allowed: bool) -> None:
        self.path = path
        self._assignments = assignments
        self._is_insecure_allowed = is_insecure_allowed

    def reloaded(self, layers: Layers) -> Reloaded:
        """Read the file again. Raises SettingsError for a file by which the broker could not start, and for
        one that contradicts the dynamic settings.
        """
        static = layers.static
        loaded = load(self.path, self._assignments, is_insecure_allowed=self._is_insecure_allowed)
        before, after = static.given, loaded.settings.given
        different = [
            name
            for name in sorted({**before, **after})
            if not _is_same(name, before.get(name), after.get(name))
        ]
        changed = tuple(name for name in different if _is_dynamic(name))
        given = {name: text for name, text in before.items() if name not in changed}
        given |= {name: after[name] for name in changed if name in after}
        settings = BrokerSettings.of(given, is_insecure_allowed=self._is_insecure_allowed).with_bound_ports(
            {listener.name: listener.port for listener in static.listeners}
        )
        Layers.of(settings, cluster=layers.cluster, broker=layers.broker)
        return Reloaded(
            settings,
            changed,
            tuple(name for name in changed if name in layers.cluster or name in layers.broker),
            tuple(name for name in different if name not in changed),
        )


def _is_dynamic(name: str) -> bool:
    key = dynamic_key(name)
    return key is not None and key.update is not Update.READ_ONLY


def _is_same(name: str, before: str | None, after: str | None) -> bool:
    if before is None or after is None:
        return False
    key = dynamic_key(name)
    return before == after if key is None else key.parse(before) == key.parse(after)
