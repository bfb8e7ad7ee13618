"""Keys that are given for one listener: `listener.name.<listener>.sasl.jaas.config` and the like.

From the most special to the most general: listener and mechanism, listener, all. The names of listeners and
mechanisms are in lower case.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from .keys import Key
from .listeners import Listener, parse_protocol_map

LISTENER_PREFIX: Final = "listener.name."
_OF_LISTENERS: Final = ("sasl.", "ssl.", "connections.max.reauth.ms")


def key_of_listener(name: str, keys: Mapping[str, tuple[str, Key]]) -> Key | None:
    """The key of `listener.name.x.…`, of those that may be given for a listener; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    parts = name.split(".")
    for first in range(3, len(parts)):
        plain = ".".join(parts[first:])
        if plain in keys and plain.startswith(_OF_LISTENERS):
            return msgspec.structs.replace(keys[plain][1], name=name)
    return None


def text_for(text: Callable[[str], str | None], listener: str, mechanism: str | None, key: str) -> str | None:
    """The value that a key has for a mechanism of a listener, or for the listener; None if it has none of its
    own. `text` looks one name up.
    """
    own = f"{LISTENER_PREFIX}{listener.lower()}."
    names = [f"{own}{key}"] if mechanism is None else [f"{own}{mechanism.lower()}.{key}", f"{own}{key}"]
    return next((found for name in names if (found := text(name)) is not None), None)


class _Listening(Protocol):
    """The settings that name listeners."""

    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...
    @property
    def inter_broker_listener_name(self) -> str: ...
    @property
    def listener_security_protocol_map(self) -> str: ...


def uses_sasl(settings: _Listening) -> bool:
    """Whether a listener of this node, or one of other nodes that it connects to, authenticates by SASL."""
    protocols = parse_protocol_map(settings.listener_security_protocol_map)
    reached = (settings.inter_broker_listener_name, *settings.controller_listener_names)
    return any(one.protocol.startswith("SASL_") for one in settings.listeners) or any(
        protocols.get(name, "").startswith("SASL_") for name in reached
    )
