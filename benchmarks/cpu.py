"""Processor time: of a subject during a measurement, and of a bare write as a control."""

import os
import tempfile
import time
from typing import Self

from benchmarks.harness import Subject


def bare_write_cpu_s(size: int, *, piece_bytes: int = 1_000_000) -> float:
    """Processor seconds of writing `size` bytes into a new file by bare `pwrite`, nothing else: the
    control of every figure of a broker's processor time per gigabyte, since fresh pages for the page cache
    cost several times more at one time than at another.
    """
    piece = os.urandom(piece_bytes)
    with tempfile.TemporaryFile(prefix="sparklog-bench-") as file:
        before_s = time.process_time()
        for position in range(0, size, piece_bytes):
            os.pwrite(file.fileno(), piece, position)
        return time.process_time() - before_s


class Stopwatch:
    """Wall and processor seconds of a subject between enter and exit."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def __enter__(self) -> Self:
        self._cpu_before = self._subject.cpu_s()
        self._wall_before = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._wall_before
        self.cpu_s = self._subject.cpu_s() - self._cpu_before
