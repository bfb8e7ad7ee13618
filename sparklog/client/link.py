"""One connection of a client: to which broker, over which stream, and the state of its protocol."""

from dataclasses import dataclass, field

from sparklog.client.cluster import Broker
from sparklog.client.connection import Connection, State
from sparklog.client.stream import Address, Output, Stream
from sparklog.model import Micros, NodeId


@dataclass(slots=True, eq=False)
class Link:
    """One broker's stream, its machine, and the bytes that the stream has not accepted yet."""

    node: NodeId
    broker: Broker
    connection: Connection
    deadline: Micros  # until the handshake is done
    last_used: Micros
    addresses: list[Address] = field(default_factory=list)  # the remaining addresses
    stream: Stream | None = None
    output: Output = field(default_factory=Output)
    is_registered_for_write: bool = False

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self.broker.host}:{self.broker.port}"

    @property
    def is_opening(self) -> bool:
        """Whether the handshake, or the first authentication, is not done yet."""
        return self.connection.state in (State.CONNECTING, State.HANDSHAKE, State.AUTHENTICATING)
