"""The parts of `sparklog debug bundle`, each bounded. A part that fails is named in `missing.json`."""

import json
import os
import platform
import re
import ssl
import sys
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from struct import unpack_from
from types import TracebackType
from typing import Final, Self

import msgspec

from sparklog import __version__
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.configs import ConfigEntry, ConfigResource
from sparklog.client.admin.topics import Topic
from sparklog.client.settings import ClientSettings
from sparklog.errors import DecodeError, SparklogError
from sparklog.escapes import lines
from sparklog.kernels import implementation
from sparklog.record.batch import HEADER_SIZE, read_header
from sparklog_server.cli.debug_secrets import REMOVED, Scrubber, is_secret, without_secrets
from sparklog_server.cli.health_checks import findings
from sparklog_server.cli.health_facts import Asking
from sparklog_server.cli.inspect import batch_row
from sparklog_server.cli.node_pages import Address, NodePages, PageFailed
from sparklog_server.cli.tune import Machine, checked

BUNDLE_BYTES_MAX: Final = 256 << 20
"""Before compression; further parts are left out and said to be."""
TOPICS_MAX: Final = 2_000
GROUPS_MAX: Final = 2_000
BROKERS_MAX: Final = 100
LOGS_MAX: Final = 500
"""Partitions of a directory whose batches are read."""
FILES_MAX: Final = 20_000
LINES_BYTES_MAX: Final = 1 << 20
_PACKAGES: Final = (
    *("click", "crc32c", "cramjam", "cryptography", "google-re2", "h11", "lz4", "msgspec", "PyJWT", "rich"),
    "zstandard",
)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_README: Final = """\
A bundle of sparklog {version}, made at {time} on {host}.

versions.json      releases of sparklog, Python, packages and the kernel
machine.json       what `sparklog tune` says
client.json        the settings of the client that asked
cluster.json       brokers, quorum, features, topics, groups
health.json        what `sparklog health` says
settings/          settings of each broker, and those of topics that differ from the default
nodes/             /metrics, /readyz and /stacks of each --http
directories/       files, and headers of batches, of each --data-dir: no key, value or header of a record
logs/              the end of each --log-file, with what looks like a secret removed
missing.json       what could not be read, and why
"""


class Bundle:
    """A new .zip, readable by its owner only."""

    def __init__(self, path: Path, client: Mapping[str, str]) -> None:
        """Raises FileExistsError."""
        self.missing: dict[str, str] = {}
        self._client = client
        self._scrubber = Scrubber(client)
        self._left = BUNDLE_BYTES_MAX
        self._path = path
        self._file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._json("missing.json", self.missing)
        self._zip.close()
        self._file.close()
        if kind is not None:
            self._path.unlink()

    # -- writing

    def _text(self, name: str, text: str) -> None:
        content = lines(self._scrubber.known(text)).encode()
        if len(content) > self._left:
            self.missing[name] = f"the bundle would have more than {BUNDLE_BYTES_MAX} bytes"
            return
        self._left -= len(content)
        self._zip.writestr(name, content)

    def _json(self, name: str, value: object) -> None:
        self._text(name, json.dumps(value, indent=1, default=str) + "\n")

    def _part(self, name: str, ask: Callable[[], object]) -> None:
        """A part as JSON, or the reason why it is missing."""
        try:
            self._json(name, ask())
        except (SparklogError, OSError) as error:
            self.missing[name] = self._scrubber.known(str(error))

    # -- parts

    def machine(self) -> None:
        """Versions, and the settings of this machine and of the client."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._text("README.txt", _README.format(version=__version__, time=at, host=platform.node()))
        self._json("versions.json", _versions())
        self._json("machine.json", [row._asdict() for row in checked(Machine.this(), ".")])
        self._json("client.json", without_secrets(self._client))

    def cluster(self, settings: ClientSettings) -> None:
        """What the cluster tells, if it answers."""
        try:
            with Admin.from_settings(settings) as admin:
                brokers = [node.node_id for node in admin.describe_cluster(include_fenced=False).nodes]
                self._part("cluster.json", lambda: _cluster(admin))
                self._part(
                    "health.json",
                    lambda: [one._asdict() for one in findings(Asking(admin, settings).facts(0))],
                )
                for node in brokers[:BROKERS_MAX]:
                    resource = ConfigResource("broker", str(node))
                    self._part(
                        f"settings/broker-{node}.json",
                        partial(_broker_settings, admin, resource),
                    )
                self._part("settings/topics.json", lambda: _topic_settings(admin))
        except (SparklogError, OSError) as error:
            self.missing["cluster.json"] = self._scrubber.known(str(error))

    def nodes(self, settings: ClientSettings, nodes: Iterable[Address]) -> None:
        """The pages of the nodes' HTTP listeners."""
        pages = NodePages(settings)
        for node in nodes:
            for path in ("/metrics", "/readyz", "/stacks"):
                name = f"nodes/{_UNSAFE.sub('_', node.host)}_{node.port}{path}.txt"
                try:
                    self._text(name, pages.read(node, path))
                except PageFailed as error:
                    self.missing[name] = self._scrubber.known(str(error))

    def directories(self, directories: Iterable[str]) -> None:
        """The files of log directories, and the headers of their newest segments."""
        for number, directory in enumerate(directories):
            self._part(f"directories/{number}.json", partial(_directory, Path(directory)))

    def logs(self, files: Iterable[str]) -> None:
        """The end of each log."""
        for number, file in enumerate(files):
            name = f"logs/{number}-{_UNSAFE.sub('_', Path(file).name)}.txt"
            try:
                with Path(file).open("rb") as log:
                    size = log.seek(0, os.SEEK_END)
                    log.seek(max(0, size - LINES_BYTES_MAX))
                    text = log.read(LINES_BYTES_MAX).decode("utf-8", "replace")
            except OSError as error:
                self.missing[name] = str(error)
                continue
            if size > LINES_BYTES_MAX:
                text = text.partition("\n")[2]  # the first line is cut
            self._text(name, self._scrubber.lines(text))


def _versions() -> dict[str, object]:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = ""
    return {
        "sparklog": __version__,
        "kernels": implementation(),
        "python": sys.version,
        "platform": platform.platform(),
        "openssl": ssl.OPENSSL_VERSION,
        "processors": os.cpu_count(),
        "packages": packages,
    }


def _cluster(admin: Admin) -> dict[str, object]:
    """The image as clients see it; a part that this user may not see is an error text."""
    topics = admin.list_topics(include_internal=True)

    def answered(ask: Callable[[], object]) -> object:
        try:
            return _plain(ask())
        except SparklogError as error:
            return {"error": str(error)}

    return {
        "cluster": answered(lambda: admin.describe_cluster(include_fenced=True)),
        "quorum": answered(admin.describe_quorum),
        "features": answered(admin.describe_features),
        "reassignments": answered(lambda: {str(at): one for at, one in admin.list_reassignments().items()}),
        "groups": answered(lambda: admin.list_groups()[:GROUPS_MAX]),
        "topic_count": len(topics),
        "topics": [_topic(topic) for topic in list(topics.values())[:TOPICS_MAX]],
    }


def _topic(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "partitions": [
            [one.partition, one.leader, one.leader_epoch, one.replicas, one.isr] for one in topic.partitions
        ],
    }


def _plain(value: object) -> object:
    return msgspec.to_builtins(value, str_keys=True)


def _settings(entries: Mapping[str, ConfigEntry]) -> dict[str, object]:
    """Values and sources by name. A broker does not send a sensitive value; one whose name is that of a
    secret is removed here too.
    """
    return {
        entry.name: {
            "value": REMOVED if entry.is_sensitive or _is_secret_value(entry) else entry.value,
            "source": entry.source,
        }
        for entry in entries.values()
    }


def _broker_settings(admin: Admin, resource: ConfigResource) -> dict[str, object]:
    return _settings(admin.describe_resources([resource])[resource])


def _is_secret_value(entry: ConfigEntry) -> bool:
    """Whether a setting that the broker does not call sensitive may have a secret. Numbers and switches have
    none, such as `delegation.token.max.lifetime.ms`.
    """
    return is_secret(entry.name) and entry.type in ("STRING", "LIST", "CLASS", "PASSWORD", "UNKNOWN")


def _topic_settings(admin: Admin) -> dict[str, object]:
    names = list(admin.list_topics(include_internal=True))[:TOPICS_MAX]
    found: dict[str, object] = {}
    for name, entries in admin.describe_configs(names).items() if names else ():
        own = {key: one for key, one in entries.items() if one.source == "DYNAMIC_TOPIC_CONFIG"}
        if own:
            found[name] = _settings(own)
    return found


def _directory(at: Path) -> dict[str, object]:
    files: list[tuple[str, int]] = []
    logs: list[dict[str, object]] = []
    is_cut = False
    for root, names, here in os.walk(at):
        names.sort()
        for name in sorted(here):
            path = Path(root) / name
            if len(files) >= FILES_MAX:
                is_cut = True
                names.clear()  # go no further
                break
            with suppress(FileNotFoundError):  # a broker may run, and remove files
                files.append((str(path.relative_to(at)), path.lstat().st_size))
        segments = sorted(name for name in here if name.endswith(".log") and (Path(root) / name).is_file())
        if segments and len(logs) < LOGS_MAX:
            logs.append(head_of(Path(root) / segments[-1], at))
    return {"directory": str(at.absolute()), "files": files, "is_cut": is_cut, "logs": logs}


FIRST: Final = 5
LAST: Final = 20
WALKED_MAX: Final = 20_000
"""Headers read from the last entry of the index, or from the start, to the end."""
_ENTRY_BYTES: Final = 8


def head_of(segment: Path, directory: Path) -> dict[str, object]:
    """The first and last headers of a segment, and where they cannot be read."""
    summary: dict[str, object] = {"segment": str(segment.relative_to(directory))}
    try:
        with segment.open("rb", buffering=0) as log:
            size = os.fstat(log.fileno()).st_size
            summary["bytes"] = size
            first, flaw = _walk(log.fileno(), 0, size, FIRST)
            start = min(_indexed(segment.with_suffix(".index")), size)
            last, last_flaw = _walk(log.fileno(), start, size, WALKED_MAX)
            summary |= {"first": first, "last": last[-LAST:], "flaw": last_flaw or flaw}
    except OSError as error:
        summary["error"] = str(error)
    return summary


def _walk(descriptor: int, position: int, size: int, count: int) -> tuple[list[dict[str, object]], str]:
    """The headers from a position on, the last of at most `count`, and why the walk ended before the end."""
    found: deque[dict[str, object]] = deque(maxlen=LAST)
    for _ in range(count):
        if position >= size:
            break
        try:
            header = read_header(os.pread(descriptor, HEADER_SIZE, position))
        except DecodeError as error:
            return list(found), f"at {position}: {error}"
        found.append(batch_row(position, header))
        position += header.size
    return list(found), ""


def _indexed(index: Path) -> int:
    """The position of the last entry of an offset index; 0 without one. An index of an open segment ends in
    zeros.
    """
    try:
        content = index.read_bytes()
    except OSError:
        return 0
    used = len(content.rstrip(b"\0"))
    end = -(-used // _ENTRY_BYTES) * _ENTRY_BYTES
    if not 0 < end <= len(content):
        return 0
    position: int = unpack_from(">i", content, end - _ENTRY_BYTES // 2)[0]
    return max(0, position)
