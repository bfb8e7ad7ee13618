"""The classes of Kafka's programs in files that the JVM maps (class-data sharing), kept beside the jars.

With it a tool takes half of its processor time: 0.6 s in place of 1.3 s. The first process of a kind that
ends well writes the file; a JVM or jars that do not match it do without, and say nothing.
"""

import itertools
import os
from pathlib import Path
from typing import Final

from tests.tools import KAFKA_JARS

_NUMBERS: Final = itertools.count(1)
_QUIET: Final = "-Xlog:disable"  # the JVM's warnings go to standard output


def archive_of(kind: str) -> Path:
    """The file for processes of a kind, which load much the same classes."""
    return KAFKA_JARS / f"{kind}.jsa"


def options_with(archive: Path) -> list[str]:
    """For the command line of java: use the archive if there is one."""
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.exists() else []


class ClassArchive:
    """The archive that one process uses, or writes when it ends."""

    def __init__(self, kind: str) -> None:
        self._file = archive_of(kind)
        self._written: Path | None = None
        if not self._file.exists() and os.access(KAFKA_JARS, os.W_OK):
            self._written = self._file.with_suffix(f".{os.getpid()}-{next(_NUMBERS)}.new")

    @property
    def options(self) -> list[str]:
        """For the command line of java."""
        if self._written is not None:
            return [f"-XX:ArchiveClassesAtExit={self._written}", _QUIET]
        return options_with(self._file)

    def ended(self, *, is_whole: bool) -> None:
        """The process has ended; `is_whole` if it was not killed, so that what it wrote can be used."""
        if self._written is None:
            return
        if is_whole and self._written.exists():
            self._written.replace(self._file)
        else:
            self._written.unlink(missing_ok=True)
