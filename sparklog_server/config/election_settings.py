"""A part of `settings`: the elections that the controller holds by time. Each field with a key is the
definition of a broker key.
"""

from typing import Annotated

import msgspec

from .kinds import long as _long


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of the controller's elections."""

    unclean_interval_ms: Annotated[
        int,
        _long(
            "unclean.leader.election.interval.ms",
            "How often the controller holds an election for partitions without a leader whose topics allow "
            "an unclean one. A change of unclean.leader.election.enable does so at once.",
            1,
        ),
    ] = 300_000
