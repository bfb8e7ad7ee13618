"""`sparklog console` and `sparklog start --console` as processes."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

import sparklog
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.main import EXIT_FAILURE, EXIT_USAGE, main
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import API_TIMEOUT_MS, Target
from tests.compatibility.kafka_broker import free_ports
from tests.console.browser import browsing

PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
READY_S_MAX = 60


@contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def line_with(stream: IO[bytes] | None, word: str) -> str:
    """The first line with that word."""
    assert stream is not None
    while select.select([stream], [], [], READY_S_MAX)[0]:
        line = stream.readline().decode()
        assert line, "the stream ended"
        if word in line:
            return line
    raise TimeoutError(word)


def url_in(line: str) -> str:
    return line.partition("console=")[2].split()[0]


def address_in(line: str) -> tuple[str, int]:
    url = httpx.URL(url_in(line))
    assert url.port is not None
    return url.host, url.port


def test_the_command_prints_its_address_serves_and_stops_by_a_signal(broker: EmbeddedBroker) -> None:
    with running("console", "-b", broker.bootstrap_servers, "--port", "0", "--read-only") as process:
        line = line_with(process.stdout, "ready")
        page = httpx.get(url_in(line), trust_env=False, timeout=60)
        assert page.status_code == 200
        assert "read-only" in page.text
        with ExitStack() as silent:
            for _ in range(220):
                one = silent.enter_context(closing(socket.create_connection(address_in(line))))
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for path in ("", "topics"):
                assert httpx.get(url_in(line) + path, trust_env=False, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(READY_S_MAX) == 0


def test_a_console_beside_a_broker_ends_with_it(tmp_path: Path) -> None:
    listen, console = free_ports(2)
    with running(
        *("start", "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{listen}"),
        *("--console", "--console-port", str(console)),
    ) as process:
        url = url_in(line_with(process.stderr, "ready console="))
        assert line_with(process.stdout, "ready").startswith("ready node=1")
        assert httpx.get(url, trust_env=False, timeout=60).status_code == 200
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.read()  # ends when the console has, which holds it open


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["console", "--host", "0.0.0.0"], "--insecure"),
        (["console", "--certificate", __file__], "go together"),
        (["console", "--login"], "security.protocol"),
        (["console", "--schema", "nothing"], "TOPIC=FILE"),
        (["start", "--listen", "127.0.0.1:0", "--console"], "fixed port"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = ["--data-dir", str(tmp_path)] if arguments[0] == "start" else ["--port", "0"]
    assert main([*arguments, *more]) == EXIT_USAGE
    assert told in capsys.readouterr().err


def test_without_its_packages_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sparklog_server.cli.console.find_spec", lambda _: None)
    assert main(["console"]) == EXIT_FAILURE
    assert "pip install 'sparklog[console]'" in capsys.readouterr().err


def test_a_console_whose_cluster_is_gone_says_so_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog_server.console.clusters.PROBED_AFTER_S", 0.0)
    (port,) = free_ports(1)
    arguments = ["start", "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    with browsing(Console(Target({"bootstrap.servers": f"127.0.0.1:{port}"}))) as browser:
        for _ in range(2):
            away = browser.client.get("/quorum")
            assert away.status_code == 503
            assert f"127.0.0.1:{port} (connection refused)" in away.text
            assert away.headers["refresh"]
            with running(*arguments) as process:
                line_with(process.stdout, "ready")
                assert "Metadata quorum" in browser.get("/quorum").text
                process.terminate()
                process.wait()


def test_a_broker_that_hangs_holds_up_neither_the_first_page_nor_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog_server.console.sampling.EVERY_S", 0.1)
    (port,) = free_ports(1)
    arguments = ["start", "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    with (
        running(*arguments) as process,
        browsing(Console(Target({"bootstrap.servers": f"127.0.0.1:{port}"}))) as browser,
    ):
        line_with(process.stdout, "ready")
        browser.post("/new-topic", name="kept")
        assert "does not answer" not in browser.get("/").text
        while not (before := browser.client.get("/rates").json()["times"]):
            pass
        process.send_signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        page = browser.get("/")
        assert time.monotonic() - begun_s < API_TIMEOUT_MS / 2000
        assert "A broker does not answer: some figures are 1 s old." in page.text
        assert "1 topic" in page.text
        assert browser.client.get("/rates").json()["times"][: len(before)] == before
        process.send_signal(signal.SIGCONT)
        while "does not answer" in browser.get("/").text:
            pass


def test_a_topic_is_shown_by_its_schema(broker: EmbeddedBroker, tmp_path: Path) -> None:
    from sparklog_server.operations.schemas import schemas

    (tmp_path / "t.avsc").write_text(
        '{"type": "record", "name": "R", "fields": [{"name": "delay", "type": "int"}]}'
    )
    with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("typed", b"\x20").result()
        producer.send("typed", b"not of the schema").result()
    target = Target({"bootstrap.servers": broker.bootstrap_servers})
    with browsing(Console(target, schemas=schemas([f"typed={tmp_path / 't.avsc'}"]))) as browser:
        assert '"delay": 16' in browser.get("/topics/typed/records/0/0").text
        assert "not as the schema says" in browser.get("/topics/typed/records").text
        assert "20" in browser.get("/topics/typed/records/0/0", **{"as": "hex"}).text
