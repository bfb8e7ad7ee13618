"""A part of `settings`: the metadata quorum. Each field with a key is the definition of a broker key."""

from typing import Annotated

import msgspec

from .keys import boolean as _boolean
from .keys import integer as _int
from .keys import invalid
from .keys import several as _list

VOTERS_KEY = "controller.quorum.voters"
AUTO_JOIN_KEY = "controller.quorum.auto.join.enable"
BOOTSTRAP_KEY = "controller.quorum.bootstrap.servers"
_PORT_MAX = 65_535


class Voter(msgspec.Struct, frozen=True):
    """A static voter and the address of its controller listener."""

    node_id: int
    host: str
    port: int


class QuorumSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The controllers and the timers of the metadata quorum. Durations in ms."""

    voters_given: Annotated[
        tuple[str, ...],
        _list(
            VOTERS_KEY,
            "The voters of a static metadata quorum, as id@host:port of their controller listeners, the "
            "same on every node. Not set for a quorum that `sparklog format` defines.",
        ),
    ] = ()
    bootstrap_servers_given: Annotated[
        tuple[str, ...],
        _list(
            BOOTSTRAP_KEY,
            "The addresses, as host:port, of controller listeners at which this node finds the metadata "
            "quorum. A cluster of one node needs none.",
        ),
    ] = ()
    election_timeout_ms: Annotated[
        int,
        _int(
            "controller.quorum.election.timeout.ms",
            "A candidate waits at least this long, and at most twice as long, for votes.",
            0,
        ),
    ] = 1_000
    fetch_timeout_ms: Annotated[
        int,
        _int(
            "controller.quorum.fetch.timeout.ms",
            "A voter that fetches nothing from the leader for this long starts an election. A leader from "
            "which no majority fetches for 1.5 times as long resigns.",
            0,
        ),
    ] = 2_000
    election_backoff_ms_max: Annotated[
        int,
        _int(
            "controller.quorum.election.backoff.max.ms",
            "The maximum pause of a voter between two elections.",
            0,
        ),
    ] = 1_000
    request_timeout_ms: Annotated[
        int,
        _int(
            "controller.quorum.request.timeout.ms",
            "A request to another node of the quorum is given up after this time.",
            0,
        ),
    ] = 2_000
    retry_backoff_ms: Annotated[
        int,
        _int(
            "controller.quorum.retry.backoff.ms",
            "A Fetch or FetchSnapshot of the metadata log that has failed is sent again after this time; one "
            "whose connection has ended, after 5 ms.",
            0,
        ),
    ] = 20
    fetch_bytes_max: Annotated[
        int,
        _int(
            "controller.quorum.fetch.max.bytes",
            "The maximum bytes of the metadata log in a response to one Fetch, which has at least one batch. "
            "The lower value of follower and leader counts.",
            1,
        ),
    ] = 1 << 20
    fetch_snapshot_bytes_max: Annotated[
        int,
        _int(
            "controller.quorum.fetch.snapshot.max.bytes",
            "The maximum bytes of a snapshot in a response to one FetchSnapshot. The lower value of follower "
            "and leader counts.",
            1,
        ),
    ] = 1 << 20
    auto_join_enable: Annotated[
        bool,
        _boolean(
            AUTO_JOIN_KEY,
            "Make this controller a voter of the metadata quorum when it is none (KIP-1186). A voter with "
            "its node id and another directory is removed first. Stop such a controller before you remove "
            "it, or it joins again.",
        ),
    ] = False

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The static voters. Raises SettingsError."""
        return tuple(_voter(entry) for entry in self.voters_given)

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The addresses at which the quorum is found. Raises SettingsError."""
        return tuple(
            address_of(BOOTSTRAP_KEY, entry, "an entry is written HOST:PORT")
            for entry in self.bootstrap_servers_given
        )


def address_of(key: str, text: str, form: str) -> tuple[str, int]:
    """The host, without brackets, and the port of HOST:PORT. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > _PORT_MAX:
        raise invalid(key, text, f"{form}, the port from 0 to {_PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise invalid(key, text, "an IPv6 address is written in brackets, as in [::1]:9093")
    return host, int(port)


def _voter(text: str) -> Voter:
    form = "an entry is written ID@HOST:PORT"
    node_id, at, address = text.partition("@")
    if not at or not (node_id.isascii() and node_id.isdecimal()):
        raise invalid(VOTERS_KEY, text, form)
    return Voter(int(node_id), *address_of(VOTERS_KEY, address, form))
