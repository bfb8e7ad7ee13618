"""One node in this process, from its settings to its exit code. Importing this imports the broker."""

import resource
import sys
from collections.abc import Sequence
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

import msgspec

from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.daemon.linux import boot_id
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.server import REFUSALS, Server, entropy, prepare_process
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.first_start import refuse_unformatted

if TYPE_CHECKING:
    from sparklog_server.config.reload import SettingsFile
    from sparklog_server.daemon.documents import Documents

__all__ = ["REFUSALS", "refusal_text", "run_node"]


def run_node(
    settings: BrokerSettings,
    warnings: Sequence[str],
    log: TraceLog,
    *,
    remedy: str,
    parent_pid: int | None = None,
    owned_directory: str | None = None,
    settings_file: "SettingsFile | None" = None,
) -> int:
    """Run a node until it is stopped, or until the process `parent_pid` is gone; its exit code. SIGHUP has it
    read `settings_file` again. `remedy` tells how a node of a cluster is formatted. Raises REFUSALS if it
    cannot start.
    """
    prepare_process()
    log.is_json = settings.lines.format == "json"
    for warning in warnings:
        log.trace("warning", text=warning)
    limit = raise_limit()
    shares = shared(limit, settings.sparklog_open_files_max)
    if (
        shares.files < settings.sparklog_open_files_max
        or shares.connections < settings.connections.max_connections
    ):
        log.trace("descriptor-limit-low", limit=limit, files=shares.files, connections=shares.connections)
    disk = OsDisk(open_files_max=shares.files, boot_id=boot_id())
    if not settings.is_alone:
        refuse_unformatted(disk, settings.metadata_log_dir, remedy)
    server = Server(
        settings,
        disk,
        lambda settings, disk, trace, now, certificates_refusal: Broker.open(
            settings,
            disk,
            entropy=entropy,
            trace=trace,
            now=now,
            work_clock=perf_counter_ns,
            read=_read_url,
            certificates_refusal=certificates_refusal,
        ),
        log,
        connections_max=shares.connections,
        parent_pid=parent_pid,
        owned_directory=owned_directory,
        settings_file=settings_file,
    )
    return server.run()


@cache
def _documents() -> "Documents":
    from sparklog_server.daemon.documents import Documents  # a node without OAUTHBEARER reads none

    return Documents()


def _read_url(url: str) -> bytes:
    return _documents().read(url)


def refusal_text(error: Exception) -> str:
    """A refusal in words, with its remedy."""
    return error.with_remedy if isinstance(error, StorageError) else str(error)


RESERVE: Final = 256
_RESERVE_SHARE: Final = 4
_UNLIMITED: Final = 1 << 20


class Shares(msgspec.Struct, frozen=True):
    """The most descriptors that segment files and connections may hold."""

    files: int
    connections: int


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def shared(limit: int, open_files_max: int) -> Shares:
    """The shares of a process that may hold `limit` descriptors."""
    reserve = min(RESERVE, limit // _RESERVE_SHARE)
    files = max(1, min(open_files_max, (limit - reserve) // 2))
    return Shares(files, max(1, limit - reserve - files))
