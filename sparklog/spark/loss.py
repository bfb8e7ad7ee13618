"""What becomes of a read whose records are gone: it fails, or goes on with what is left, as the user said."""

import warnings
from collections.abc import Sequence

from sparklog.spark import plan
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.options import Options
from sparklog.spark.plan import DataLoss, OffsetRange


def still_there(ranges: Sequence[OffsetRange], log_start: PartitionOffsets, options: Options) -> list[OffsetRange]:
    """The ranges without what is gone below the log start offsets, which is reported."""
    losses = plan.lost(ranges, log_start)
    if not losses:
        return list(ranges)
    report_loss(losses, options)
    return plan.without_lost(ranges, log_start)


def report_loss(losses: Sequence[str], options: Options) -> None:
    """Fails with DataLoss, or warns where the user said to go on: a warning of a Python worker lands in the executor's log."""
    if options.fail_on_data_loss:
        raise DataLoss(plan.loss_text(losses))
    warnings.warn("records are gone and left out, as failOnDataLoss is false: " + "; ".join(losses), stacklevel=2)
