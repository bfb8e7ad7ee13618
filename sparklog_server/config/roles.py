"""The roles of a node, and the rules that bind `process.roles`, the listeners and the quorum (those of
Kafka's `KafkaConfig.validateValues`).

    no quorum key       one node with both roles; it needs no controller listener
    other nodes named   a controller listens on every controller.listener.names, a broker on none of them
"""

from typing import Protocol

from sparklog.errors import SettingsError

from .keys import invalid
from .listeners import Listener
from .quorum_settings import AUTO_JOIN_KEY, BOOTSTRAP_KEY, VOTERS_KEY, QuorumSettings

BROKER, CONTROLLER = "broker", "controller"


class Roles(Protocol):
    """The keys that are checked against each other."""

    @property
    def node_id(self) -> int: ...
    @property
    def process_roles(self) -> tuple[str, ...]: ...
    @property
    def quorum(self) -> QuorumSettings: ...
    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def advertised_listeners(self) -> tuple[Listener, ...]: ...
    @property
    def advertised_listeners_given(self) -> tuple[str, ...] | None: ...
    @property
    def inter_broker_listener_name_given(self) -> str | None: ...
    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...


def is_alone(settings: Roles) -> bool:
    """Whether a node with both roles names no other controller: neither a voter nor a bootstrap server."""
    if len(settings.process_roles) == 1:
        return False
    if settings.quorum.voters:
        return {voter.node_id for voter in settings.quorum.voters} == {settings.node_id}
    own = [
        listener
        for listener in (*settings.listeners, *settings.advertised_listeners)
        if listener.name in settings.controller_listener_names
    ]
    return all(
        any(_is_at(listener, host, port) for listener in own)
        for host, port in settings.quorum.bootstrap_servers
    )


def check_roles(settings: Roles) -> None:
    """Raises SettingsError for the first contradiction, with what to set."""
    if not settings.process_roles:
        raise invalid("process.roles", "", "a node needs a role: broker, controller, or both")
    _check_quorum(settings)
    if CONTROLLER not in settings.process_roles:
        _check_broker(settings)
    elif BROKER not in settings.process_roles:
        _check_controller(settings)
    if CONTROLLER in settings.process_roles and not is_alone(settings):
        _check_controller_listeners(settings)


def _check_quorum(settings: Roles) -> None:
    """The voters, and whether this node is one of them."""
    voters = [voter.node_id for voter in settings.quorum.voters]
    shown = ",".join(settings.quorum.voters_given)
    is_controller = CONTROLLER in settings.process_roles
    if len(set(voters)) != len(voters):
        raise invalid(VOTERS_KEY, shown, "a node id appears twice")
    if not voters and not settings.quorum.bootstrap_servers and len(settings.process_roles) == 1:
        raise invalid(
            "process.roles",
            settings.process_roles,
            f"a node with one role belongs to a cluster: set {BOOTSTRAP_KEY}=HOST:PORT of its controllers",
        )
    if voters and is_controller and settings.node_id not in voters:
        raise invalid(
            VOTERS_KEY,
            shown,
            f"node {settings.node_id} is a controller and not among the voters: add "
            f"{settings.node_id}@HOST:PORT, or set process.roles=broker",
        )
    if settings.node_id in voters and not is_controller:
        raise invalid(
            VOTERS_KEY,
            shown,
            f"node {settings.node_id} is a voter and has only the role broker: set "
            f"process.roles=broker,controller, or choose another node.id",
        )


def _check_broker(settings: Roles) -> None:
    """A node that is only a broker knows the name of the controllers' listener and does not open it."""
    if settings.quorum.auto_join_enable:
        raise invalid(
            AUTO_JOIN_KEY,
            "true",
            "a node with process.roles=broker is no voter: remove it, or set process.roles=broker,controller",
        )
    names = settings.controller_listener_names
    if not names:
        raise SettingsError(
            "controller.listener.names is not set: a node with process.roles=broker needs the listener "
            "name of its controllers, as in controller.listener.names=CONTROLLER"
        )
    advertised = [text.partition("://")[0].upper() for text in settings.advertised_listeners_given or ()]
    for key, opened in (
        ("listeners", [listener.name for listener in settings.listeners]),
        ("advertised.listeners", advertised),
    ):
        for name in opened:
            if name in names:
                raise invalid(
                    key,
                    name,
                    "a node with process.roles=broker has no listener of controller.listener.names: remove "
                    "it, or set process.roles=broker,controller",
                )


def _check_controller(settings: Roles) -> None:
    """A node that is only a controller opens no other listener."""
    for listener in settings.listeners:
        if listener.name not in settings.controller_listener_names:
            raise invalid(
                "listeners",
                str(listener),
                "a node with process.roles=controller has only the listeners of "
                "controller.listener.names: remove it, or set process.roles=broker,controller",
            )
    name = settings.inter_broker_listener_name_given
    if name is not None and name.upper() in settings.controller_listener_names:
        raise invalid(
            "inter.broker.listener.name", name, "it must not be one of controller.listener.names: remove it"
        )


def _check_controller_listeners(settings: Roles) -> None:
    """A controller of several nodes opens every controller listener, at an address that others can reach."""
    names = [listener.name for listener in settings.listeners]
    if not settings.controller_listener_names:
        raise SettingsError(
            "controller.listener.names is not set: a controller of several nodes needs a listener for them, "
            "as in controller.listener.names=CONTROLLER and listeners=…,CONTROLLER://127.0.0.1:9093"
        )
    for name in settings.controller_listener_names:
        if name not in names:
            raise invalid(
                "controller.listener.names",
                name,
                f"a controller opens each of these listeners: add {name}://HOST:PORT to `listeners`",
            )
    for listener in settings.advertised_listeners:
        if listener.name in settings.controller_listener_names and listener.is_wildcard:
            raise SettingsError(
                f"{listener.name} is advertised as {listener.host or 'an empty host'}, which no other node "
                f"can connect to: add {listener.name}://<a name the nodes can resolve>:{listener.port} to "
                f"advertised.listeners"
            )


def _is_at(listener: Listener, host: str, port: int) -> bool:
    """Whether an address is that of a listener of this node."""
    if listener.port != port:
        return False
    is_local = Listener("", host, port, "").is_loopback and (listener.is_loopback or listener.is_wildcard)
    return host == listener.host or is_local
