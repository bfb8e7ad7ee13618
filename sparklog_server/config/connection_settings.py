"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated

import msgspec

from .keys import INT_MAX, Update
from .keys import integer as _int
from .keys import long as _long

_MIB = 1 << 20
_CLUSTER = Update.CLUSTER_WIDE


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on sockets, requests and replies of sessions. Durations in ms, sizes in bytes."""

    socket_send_buffer_bytes: Annotated[
        int,
        _int(
            "socket.send.buffer.bytes",
            "The size of the socket send buffer (SO_SNDBUF). -1 means the system's default.",
            -1,
        ),
    ] = 102_400
    socket_receive_buffer_bytes: Annotated[
        int,
        _int(
            "socket.receive.buffer.bytes",
            "The size of the socket receive buffer (SO_RCVBUF). -1 means the system's default.",
            -1,
        ),
    ] = 102_400
    socket_listen_backlog_size: Annotated[
        int,
        _int(
            "socket.listen.backlog.size",
            "The maximum number of connections that wait to be accepted. The system may set a lower limit.",
            1,
        ),
    ] = 1024
    socket_request_max_bytes: Annotated[
        int,
        _int(
            "socket.request.max.bytes",
            "The maximum size of a Produce request. A larger request closes the connection.",
            1,
        ),
    ] = 104_857_600
    sparklog_frame_other_max_bytes: Annotated[
        int,
        _int("sparklog.frame.other.max.bytes", "The maximum size of any request other than Produce.", 1024),
    ] = 8 * _MIB
    queued_max_request_bytes: Annotated[
        int,
        _long(
            "queued.max.request.bytes",
            "The maximum bytes, over all sessions, of requests that are incomplete, queued on a muted "
            "session, or in a job. Beyond it, only the oldest incomplete request is read on; beyond twice "
            "this size, sessions are disconnected, the youngest request first. -1 means no limit, which "
            "is Kafka's default.",
            -1,
        ),
    ] = 64 * _MIB
    sparklog_session_in_flight_max: Annotated[
        int,
        _int(
            "sparklog.session.in.flight.max",
            "The maximum number of unanswered requests of one session. Beyond it, the session is not read.",
            1,
        ),
    ] = 64
    sparklog_session_unsent_max_bytes: Annotated[
        int,
        _int(
            "sparklog.session.unsent.max.bytes",
            "The maximum bytes of unsent replies of one session. Beyond it, the session is not read.",
            65_536,
        ),
    ] = 64 * _MIB
    sparklog_reply_memory_max: Annotated[
        int,
        _int(
            "sparklog.reply.memory.max",
            "The maximum memory of unsent replies, over all sessions; records sent from files do not "
            "count. Beyond half of it, sessions with unsent replies are not served; beyond it, the "
            "session that has received nothing for the longest time is disconnected.",
            1 * _MIB,
        ),
    ] = 64 * _MIB
    max_connections: Annotated[
        int,
        _int(
            "max.connections",
            "The maximum number of connections. At the limit, a new connection replaces the one that has "
            "been idle longest, and waits while every connection has a request in flight. Kafka has no "
            "limit by default.",
            0,
            update=_CLUSTER,
        ),
    ] = 10_000
    sparklog_inter_broker_connections_reserve: Annotated[
        int,
        _int(
            "sparklog.inter.broker.connections.reserve",
            "The number of connections reserved for the inter-broker listener if there are several "
            "listeners; at most a quarter of all.",
            0,
        ),
    ] = 64
    max_connections_per_ip: Annotated[
        int,
        _int(
            "max.connections.per.ip",
            "The maximum number of connections from one address.",
            0,
            update=_CLUSTER,
        ),
    ] = INT_MAX
    max_connection_creation_rate: Annotated[
        int,
        _int(
            "max.connection.creation.rate",
            "The maximum number of new connections per second. Beyond it, accepting pauses for up to "
            "`quota.window.size.seconds`.",
            0,
            update=_CLUSTER,
        ),
    ] = INT_MAX
    connections_max_idle_ms: Annotated[
        int,
        _long(
            "connections.max.idle.ms",
            "A connection that is idle for this long is closed. A negative value disables this.",
        ),
    ] = 600_000
