"""Two parts of `settings`: the replication of partitions, and the elections of their leaders. Each field with
a key is the definition of a broker key.
"""

from typing import Annotated

import msgspec

from .keys import Key, Kind
from .keys import boolean as _boolean
from .keys import integer as _int
from .keys import long as _long

RESPONSE_BYTES_MAX = 2 << 20
"""The most that a follower requests in one response; a larger setting counts as this. A response is appended
within the turn in which it is complete, and should fit into the caches of the processor.
"""


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Followers and their leaders. Durations in ms, sizes in bytes."""

    lag_time_ms_max: Annotated[
        int,
        _long(
            "replica.lag.time.max.ms",
            "A follower that has not been caught up with the leader for this long leaves the ISR.",
            1,
        ),
    ] = 30_000
    fetch_wait_ms_max: Annotated[
        int,
        _int(
            "replica.fetch.wait.max.ms",
            "How long the leader holds the fetch of a follower while there are no new records. Should be "
            "less than replica.lag.time.max.ms.",
        ),
    ] = 500
    fetch_bytes_min: Annotated[
        int, _int("replica.fetch.min.bytes", "How many bytes of records the fetch of a follower waits for.")
    ] = 1
    fetch_bytes_max: Annotated[
        int,
        _int("replica.fetch.max.bytes", "The most bytes that a follower requests for each partition.", 0),
    ] = 1 << 20
    response_bytes_max: Annotated[
        int,
        _int(
            "replica.fetch.response.max.bytes",
            "The most bytes that a follower requests in one response; at most 2 MiB is requested.",
            0,
        ),
    ] = 10 << 20
    fetch_backoff_ms: Annotated[
        int,
        _int(
            "replica.fetch.backoff.ms",
            "How long a follower pauses after a failed fetch, or a partition of it after an error.",
            0,
        ),
    ] = 1_000
    socket_timeout_ms: Annotated[
        int,
        _int("replica.socket.timeout.ms", "How long a follower waits for a response."),
    ] = 30_000
    selector_class: Annotated[
        str | None,
        Key(
            "replica.selector.class",
            Kind.STRING,
            "Which replica a consumer reads from: with Kafka's class for racks, one in the rack that the "
            "consumer names as its `client.rack` (KIP-392). When not set, the leader.",
            choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector",),
        ),
    ] = None


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's elections by time. Durations as in their names."""

    is_balanced: Annotated[
        bool,
        _boolean(
            "auto.leader.rebalance.enable",
            "Whether the controller gives leaderships back to the preferred replicas that are in sync.",
        ),
    ] = True
    balance_interval_s: Annotated[
        int,
        _long(
            "leader.imbalance.check.interval.seconds",
            "How often the controller looks for leaderships to give back to preferred replicas. It also does "
            "so 5 seconds after a replica is in sync again or a broker is in service again.",
            1,
        ),
    ] = 300
    unclean_interval_ms: Annotated[
        int,
        _long(
            "unclean.leader.election.interval.ms",
            "How often the controller holds an election for partitions without a leader whose topics allow "
            "an unclean one. A change of unclean.leader.election.enable does so at once.",
            1,
        ),
    ] = 300_000
