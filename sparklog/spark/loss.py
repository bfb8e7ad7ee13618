"""Handling of lost records: the read fails or continues with the remaining records, according to
`failOnDataLoss`.
"""

import warnings
from collections.abc import Sequence
from typing import Final

from sparklog.arrow.ranges import DataLoss, OffsetRange, loss_text, lost, without_lost
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.option_values import WhenLost
from sparklog.spark.options import Options

_REMEDY: Final = "Set the option failOnDataLoss to warn or skip to continue with the remaining records."


def still_there(
    ranges: Sequence[OffsetRange], log_start: PartitionOffsets, options: Options
) -> list[OffsetRange]:
    """The ranges without offsets below the log start offsets; the lost offsets are reported."""
    losses = lost(ranges, log_start)
    if not losses:
        return list(ranges)
    report_loss(losses, options)
    return without_lost(ranges, log_start)


def report_loss(losses: Sequence[str], options: Options) -> None:
    """Raises DataLoss, warns, or does nothing, according to the option; a warning of a Python worker
    appears in Spark's log.
    """
    if options.data_loss is WhenLost.FAIL:
        raise DataLoss(loss_text(losses, _REMEDY))
    if options.data_loss is WhenLost.WARN:
        warnings.warn(
            "lost records are skipped, because failOnDataLoss is warn: " + "; ".join(losses), stacklevel=2
        )
