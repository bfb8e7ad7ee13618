"""What each use of the options requires, and what has no effect in it.

An option that has no effect in a use is refused if the definition says so, because the result would differ
from what it asks for; otherwise it causes a warning. Options that select both what to read and where to write
belong to a table or view for both, so that those of the other direction cause no warning.
"""

import warnings
from dataclasses import fields
from typing import Final

from sparklog.errors import SettingsError
from sparklog.spark import positions
from sparklog.spark.client_options import CLIENT_PREFIX, OF_READS, OF_WRITES, without_effect
from sparklog.spark.option_values import READS, WRITES, Definition, Guarantee, Use
from sparklog.spark.options import Options
from sparklog.spark.positions import LATEST, ByOffset

_SPLITS: Final = ("min_partitions", "max_records_per_partition", "max_bytes_per_partition")


def checked(options: Options, use: Use) -> Options:
    """The options, checked for one use. Raises SettingsError for options that it requires or refuses, and
    warns of those that have no effect in it.
    """
    if use in READS.where:
        require_subscription(options)
    start = options.start
    if use is Use.BATCH_READ and (
        start == LATEST or (isinstance(start, ByOffset) and start.names(positions.LATEST_OFFSET))
    ):
        raise SettingsError(
            "option 'startingOffsets' of a batch read cannot be latest (-1): nothing would be read"
        )
    given, direction = _given(options), READS if use in READS.where else WRITES
    names = {definition.name for definition in given.values()}
    is_for_both = bool(options.subscriptions) and options.topic is not None
    for attribute, definition in given.items():
        if use in definition.uses.refused:
            raise SettingsError(
                f"option {definition.name!r} is for {definition.uses.name}; {definition.uses.refused[use]}"
            )
        is_of_other_direction = definition.uses.where.isdisjoint(direction.where)
        if use not in definition.uses.where:
            if not (is_for_both and is_of_other_direction):
                _warn(definition.name, f"in {use.value}: it is for {definition.uses.name}")
        elif definition.needs and names.isdisjoint(definition.needs):
            _warn(definition.name, f"without {' or '.join(definition.needs)}")
        elif use is Use.BATCH_READ and options.late_binding and attribute in _SPLITS:
            _warn(definition.name, "with lateBinding, where each partition is one task")
        elif attribute == "sink_id" and use is Use.BATCH_WRITE and options.txn_app_id is None:
            _warn(definition.name, "without txnAppId")
        elif attribute == "sink_id" and options.delivery is Guarantee.AT_LEAST_ONCE:
            _warn(definition.name, "in a write whose delivery is at_least_once")
    if options.checkpoint and use is not Use.STREAM_WRITE:
        _warn("checkpointLocation", f"in {use.value}: it is for streaming writes")
    used, others = (OF_READS, OF_WRITES) if direction is READS else (OF_WRITES, OF_READS)
    for setting in without_effect(options.client, used):
        if not (is_for_both and setting in others):
            _warn(CLIENT_PREFIX + setting.replace("_", "."), f"in {use.value}")
    return options


def require_subscription(options: Options) -> None:
    """Raises SettingsError if no option selects what to read."""
    if not options.subscriptions:
        raise SettingsError(
            "nothing to read: set one of the options 'subscribe', 'subscribePattern' and 'assign'"
        )


def _given(options: Options) -> dict[str, Definition]:
    """The options that have another value than their default, by attribute."""
    return {
        f.name: f.metadata["definition"]
        for f in fields(options)
        if "definition" in f.metadata and getattr(options, f.name) != f.default
    }


def _warn(name: str, where: str) -> None:
    warnings.warn(f"option {name!r} has no effect {where}", UserWarning, stacklevel=3)
