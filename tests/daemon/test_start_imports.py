"""The modules that a broker imports before its ready line: imports are most of the time of a start."""

import re
import subprocess
import sys
from pathlib import Path

from sparklog.wire.api_keys import API_BY_KEY
from sparklog_server.broker.dispatch import HANDLERS, SERVED, TELEMETRY_APIS, import_handler
from sparklog_server.cli.main import main

MODULES_MAX = 370
LATER = (
    "asyncio",
    "cramjam",
    "h11",
    "hashlib",
    "hmac",
    "ipaddress",
    "json",
    "lz4",
    "pathlib",
    "pyarrow",
    "pyspark",
    "shutil",
    "sparklog.client.consumer.consumer",
    "sparklog.client.producer.producer",
    "sparklog.spark",
    "sparklog_server.broker.metrics.client_telemetry",
    "sparklog_server.broker.handlers.configs",
    "sparklog_server.broker.handlers.fetch",
    "sparklog_server.broker.handlers.groups",
    "sparklog_server.broker.handlers.produce",
    "sparklog_server.broker.handlers.transactions",
    "sparklog_server.broker.metrics.otlp",
    "sparklog_server.broker.metrics.report",
    "sparklog_server.broker.metrics.request_times",
    "sparklog_server.config.describe",
    "sparklog_server.controller.administration",
    "sparklog_server.controller.refusals",
    "sparklog_server.controller.topics",
    "sparklog_server.coordinator.group.shard",
    "sparklog_server.coordinator.loader",
    "sparklog_server.coordinator.txn.shard",
    "sparklog_server.daemon.http_listener",
    "sparklog_server.histogram",
    "sparklog_server.log.cleaning.cleaner",
    "sparklog_server.log.lookup.time_lookup",
    "sparklog_server.log_tools.examine_directory",
    "sparklog_server.log_tools.repair",
    "sparklog_server.metrics",
    "sparklog_server.security.audit",
    "sparklog_server.security.authorizer",
    "sparklog_server.simulation",
    "sparklog.tls",
    "ssl",
    "traceback",
    "zstandard",
)
LATER_IF_SECURE = (
    "bz2",
    "cryptography",
    "jwt",
    "pathlib",
    "re2",
    "sparklog_server.broker.dispatch_controller",
    "sparklog_server.broker.handlers.configs",
    "sparklog_server.broker.handlers.produce",
    "sparklog_server.controller.administration",
    "tempfile",
)
START = "from sparklog_server.cli.main import main; main()"


def imported_by_a_start(directory: Path, *arguments: str) -> list[str]:
    with (
        (directory / "imports").open("w+") as imports,
        subprocess.Popen(
            [sys.executable, "-X", "importtime", "-c", START, "start", *arguments],
            stdout=subprocess.PIPE,
            stderr=imports,
            text=True,
        ) as broker,
    ):
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready ")
        imports.seek(0)
        imported = re.findall(r"^import time:[ \d|]*\| +(\S+)$", imports.read(), re.MULTILINE)
        broker.terminate()
    assert "sparklog_server.broker.broker" in imported
    return imported


def test_a_first_start_imports_only_what_its_ready_line_needs(tmp_path: Path) -> None:
    imported = imported_by_a_start(tmp_path, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    assert [name for name in LATER if name in imported] == []
    assert len(imported) <= MODULES_MAX


def test_a_secure_start_imports_neither_cryptography_nor_handlers(tmp_path: Path) -> None:
    assert main(["init", "--secure", str(tmp_path / "c"), "--base-port", "0"]) == 0
    imported = imported_by_a_start(tmp_path, "--config", str(tmp_path / "c" / "node-1.properties"))
    assert "ssl" in imported
    assert [name for name in LATER_IF_SECURE if name in imported] == []


def test_every_served_api_has_a_handler() -> None:
    handlers = HANDLERS.copy()
    served = (*SERVED, *TELEMETRY_APIS)
    for api_key in served:
        if api_key not in handlers:
            handler, request = import_handler(handlers, api_key) or (None, None)
            assert callable(handler), api_key
            assert request is API_BY_KEY[api_key].request()
    assert sorted(handlers) == sorted(served)
    assert import_handler(handlers, 1_000) is None
