"""Compares the checkpoints of a directory with the log of one partition: nothing below the recovery point
may be missing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparklog.model import Offset
from sparklog_server.log.segment.leader_epoch_cache import LeaderEpochCache

from .examine_segment import RESTORE, SegmentCheck, Tail, log_path
from .finding import Finding

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"


class Promises(NamedTuple):
    """The checkpointed state of one partition: whether the stop was clean, and its offsets (None: not in the
    checkpoint).

    `written` is the time at which the recovery point was written, if it is known.
    """

    was_clean: bool = True
    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start: int | None = None
    cleaned: int | None = None
    written: str | None = None

    @property
    def point(self) -> str:
        """The recovery point for a message."""
        when = "" if self.written is None else f", written at {self.written}"
        return f"the last recovery point {self.recovery_point or 0}{when}"


def tail_finding(tail: Tail, checks: Sequence[SegmentCheck], promises: Promises) -> Finding:
    """The finding for the bytes that the next start truncates, from `tail` on; `checks` are those of its
    segment and of later ones.
    """
    first, *others = checks
    sound = first.behind + sum(check.batches for check in others)
    end = max(check.end_offset for check in checks)
    size = first.size - tail.unsound.start
    more = (
        f" and the {len(others)} segments behind it ({sum(check.size for check in others)} bytes)"
        if others
        else ""
    )
    follows = (
        f"{sound} sound batches up to offset {end - 1} follow and go too"
        if sound
        else "no sound batch follows"
    )
    keep = "; `sparklog log repair` before that start keeps them" if sound else ""
    remedy = (
        f"at its next start the broker copies bytes [{tail.unsound.start}, {first.size}) of this file{more} "
        f"aside and cuts the log at "
        f"offset {tail.offset}, {size} bytes here: {follows}{keep}"
    )
    what = (
        f"{tail.unsound.what}; offset {tail.offset} is above {promises.point}: what was not synced before a "
        "crash may end so"
    )
    return Finding(tail.path, tail.unsound.position, what, remedy, is_damage=False, is_mended=True)


def hole_finding(path: str, end: int, base: int, promises: Promises) -> Finding:
    """The finding for a segment at `path` that begins with `base` after `end`: compaction leaves such a hole,
    and so does a missing file.
    """
    is_cleaned = promises.cleaned is not None and base <= promises.cleaned
    is_promised = promises.recovery_point is not None and end < promises.recovery_point
    if is_promised and not is_cleaned:
        missing = f"offsets [{end}, {base}) are missing below {promises.point}"
        what = f"begins with offset {base}, but the segment before ends with {end - 1}: {missing}"
        return Finding(path, None, what, RESTORE)
    what = (
        f"the segment before ends with offset {end - 1}: compaction leaves such gaps, and so does a file "
        "that is missing"
    )
    return Finding(path, None, what, "check whether a file is missing", is_damage=False)


def check_promises(
    name: str,
    end: int,
    directory: str,
    promises: Promises,
    bases: list[Offset],
    epochs: LeaderEpochCache | None,
) -> list[Finding]:
    """Compare the checkpoints of the directory with the start and the end of the log; `end` is -1 if there is
    no log.
    """
    findings: list[Finding] = []
    root = directory.rpartition("/")[0]
    path = log_path(directory, bases[-1]) if bases else directory
    if promises.recovery_point is not None and promises.recovery_point > max(end, 0):
        what = (
            f"the log ends at offset {end}, but everything below {promises.point} was durable "
            f"({RECOVERY_POINT})"
        )
        findings.append(Finding(path, None, what, RESTORE))
    elif promises.high_watermark is not None and promises.high_watermark > max(end, 0):
        what = (
            f"the log ends at offset {end}, but records below {promises.high_watermark} were committed "
            f"({HIGH_WATERMARK})"
        )
        findings.append(Finding(path, None, what, RESTORE, is_damage=promises.was_clean))
    if promises.log_start is not None and promises.log_start > max(end, 0):
        what = f"says {promises.log_start} for {name}, whose log ends at {end}"
        findings.append(
            Finding(f"{root}/{LOG_START}", None, what, "correct the line: the log is emptied otherwise")
        )
    start = max(promises.log_start or 0, epochs.entries[0][1] if epochs is not None and epochs.entries else 0)
    if bases and bases[0] > start and (promises.recovery_point or 0) > start:
        what = (
            f"the first segment begins with offset {bases[0]}, but the log begins at {start}: offsets "
            f"[{start}, {bases[0]}) are missing"
        )
        findings.append(Finding(log_path(directory, bases[0]), None, what, RESTORE))
    return findings


WrittenAt = Callable[[str], str | None]
