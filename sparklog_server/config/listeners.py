"""Listeners: the addresses that the broker binds, those that it advertises, and the rules for both."""

from collections.abc import Mapping

import msgspec

from sparklog.errors import SettingsError

from .keys import entries_of, invalid

DEFAULT_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's protocols; the position of each is its number in registrations."""
_SECURE = PROTOCOLS[1:]
LISTENER_PREFIX = "listener.name."
"""Of the keys that are given for one listener; its name in lower case follows."""
WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - recognised in order to be refused without an advertised name


def joined(host: str, port: int) -> str:
    """An address as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_encrypted(protocol: str) -> bool:
    """Whether connections of this protocol use TLS."""
    return protocol.endswith("SSL")


class Listener(msgspec.Struct, frozen=True):
    """A named endpoint. `host` has no brackets; with port 0, the system chooses a port at the bind."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{joined(self.host, self.port)}"

    @property
    def protocol_number(self) -> int:
        """The number of the protocol in registrations."""
        return PROTOCOLS.index(self.protocol)

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections use TLS."""
        return is_encrypted(self.protocol)

    @property
    def is_sasl(self) -> bool:
        """Whether its clients authenticate by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def is_wildcard(self) -> bool:
        """Whether the host is a wildcard address."""
        return self.host in WILDCARD_HOSTS

    @property
    def is_loopback(self) -> bool:
        """Whether the host is a loopback address."""
        return is_loopback(self.host)


class Endpoints(msgspec.Struct, frozen=True):
    """All listeners of a broker, their advertised addresses, and the inter-broker listener."""

    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker_name: str
    protocols: Mapping[str, str]


def derive_endpoints(
    texts: tuple[str, ...],
    *,
    advertised: tuple[str, ...] | None,
    protocol_map: str,
    is_map_given: bool,
    controller_names: tuple[str, ...],
    inter_broker_name: str | None,
    is_broker: bool,
) -> Endpoints:
    """The endpoints that the listener keys define together; raises SettingsError."""
    protocols = parse_protocol_map(protocol_map)
    if not is_map_given:
        # As in Kafka, a controller listener may be missing from the map while the map has its default: it
        # is PLAINTEXT, unless another listener is secure.
        opened = [text.partition("://")[0].strip().upper() for text in texts]
        for name in () if any(one in _SECURE for one in opened) else controller_names:
            protocols.setdefault(name.upper(), "PLAINTEXT")
    listeners = parse_listeners("listeners", texts, protocols)
    shown = listeners
    if advertised is not None:
        told = parse_listeners("advertised.listeners", advertised, protocols)
        names = {listener.name for listener in told}
        shown = told + tuple(listener for listener in listeners if listener.name not in names)
    clients = [listener for listener in listeners if listener.name not in controller_names]
    if not clients and is_broker:
        raise invalid(
            "listeners", ",".join(texts), "no listener is left for clients beside controller.listener.names"
        )
    check_reachable(listeners, tuple(one for one in shown if one.name not in controller_names))
    if not clients:
        return Endpoints(listeners, shown, inter_broker_name or "PLAINTEXT", protocols)
    inter_broker = inter_broker_name or next(
        (one.name for one in clients if one.name == "PLAINTEXT"), clients[0].name
    )
    if inter_broker not in {listener.name for listener in clients}:
        raise invalid(
            "inter.broker.listener.name",
            inter_broker,
            f"the listeners for it are: {', '.join(c.name for c in clients)}",
        )
    return Endpoints(listeners, shown, inter_broker, protocols)


def with_ports(listeners: tuple[Listener, ...], ports: Mapping[str, int]) -> tuple[Listener, ...]:
    """The same listeners with the ports that the system chose, by name, in place of port 0."""
    return tuple(
        Listener(one.name, one.host, ports[one.name], one.protocol)
        if one.port == 0 and one.name in ports
        else one
        for one in listeners
    )


def parse_protocol_map(text: str) -> dict[str, str]:
    """Protocol by listener name, from `NAME:PROTOCOL,…`; raises SettingsError."""
    protocols: dict[str, str] = {}
    for entry in entries_of(text):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise invalid(
                "listener.security.protocol.map",
                entry or text,
                f"each entry is NAME:PROTOCOL, the protocol one of {', '.join(PROTOCOLS)}",
            )
        if name in protocols:
            raise invalid("listener.security.protocol.map", text, f"the listener {name} appears twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, texts: tuple[str, ...], protocols: dict[str, str]) -> tuple[Listener, ...]:
    """The listeners of `NAME://HOST:PORT` texts; names and ports must differ (ports unless 0); raises
    SettingsError naming `key`.
    """
    listeners: list[Listener] = []
    for text in texts:
        listener = _parse_listener(key, text, protocols)
        for other in listeners:
            if other.name == listener.name:
                raise invalid(key, ",".join(texts), f"the listener name {listener.name} appears twice")
            same_port = key == "listeners" and listener.port != 0 and other.port == listener.port
            if same_port and (other.host == listener.host or other.is_wildcard or listener.is_wildcard):
                raise invalid(key, ",".join(texts), f"{other} and {listener} use the same port")
        listeners.append(listener)
    return tuple(listeners)


def check_reachable(listeners: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> None:
    """Refuses addresses that no client could use; raises SettingsError with the remedy."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise invalid(
                "advertised.listeners",
                str(listener),
                f"there is no listener named {listener.name} in `listeners`",
            )
        if listener.is_wildcard:
            raise SettingsError(
                f"{listener.name} is advertised as {listener.host or 'an empty host'}, which no client can "
                f"connect to: "
                f"set advertised.listeners={listener.name}://<a name clients can resolve>:{listener.port}"
            )


def _parse_listener(key: str, text: str, protocols: dict[str, str]) -> Listener:
    name, separator, address = text.partition("://")
    host, colon, port_text = address.rpartition(":")
    if (
        not separator
        or not colon
        or not port_text.isascii()
        or not port_text.isdigit()
        or int(port_text) > 65535
    ):
        raise invalid(key, text, "a listener is written NAME://HOST:PORT, the port from 0 to 65535")
    name = name.strip().upper()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise invalid(key, text, "an IPv6 address is written in brackets, as in PLAINTEXT://[::1]:9092")
    if name not in protocols:
        raise invalid(
            key, text, f"the listener name {name} is neither a protocol nor in listener.security.protocol.map"
        )
    return Listener(name, host, int(port_text), protocols[name])


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or localhost."""
    return host in ("localhost", "::1") or _is_loopback_v4(host)


def _is_loopback_v4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
