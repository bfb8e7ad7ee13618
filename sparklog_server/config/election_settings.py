"""A part of `settings`: the elections that the controller holds by time. Each field with a key is the
definition of a broker key.
"""

from typing import Annotated

import msgspec

from .kinds import boolean as _boolean
from .kinds import long as _long


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
            "How often leaderships are given back to preferred replicas.",
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
