"""A broker as a service: what it tells the manager, and SIGHUP."""

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog import Admin
from sparklog.client.admin.admin import NewTopic
from sparklog_server.cli.start import start
from sparklog_server.daemon.service import ServiceManager
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess
from tests.tools import PROJECT, require_command

UNIT = PROJECT / "conf" / "sparklog.service"


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)

    def told(self) -> dict[str, str]:
        """The next datagram but those of the watchdog."""
        while True:
            lines = self._socket.recv(4096).decode().split("\n")
            if lines != ["WATCHDOG=1"]:
                return dict(line.partition("=")[::2] for line in lines)

    def raw(self) -> bytes:
        return self._socket.recv(4096)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(autouse=True)
def hangups_arrive() -> Iterator[None]:
    """A process under nohup ignores SIGHUP, and so does a broker that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = tmp_path.name
    manager = Manager(str(tmp_path / "notify") if request.param == "path" else f"@sparklog-test-{name}")
    yield manager
    manager.close()


class Service:
    """A broker with a settings file, and the lines of its log."""

    def __init__(self, directory: Path, text: str, *arguments: str, environment: dict[str, str]) -> None:
        self.file = directory / "broker.properties"
        self._common = f"log.dirs={directory / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        self.write(text)
        self.process = BrokerProcess("--config", str(self.file), *arguments, environment=environment)

    def write(self, text: str) -> None:
        self.file.write_text(self._common + text)

    def line(self, event: str) -> str:
        """The next line of that event."""
        for line in self.process.stderr:
            if f" {event} " in line:
                return line.partition("Z ")[2].removesuffix("\n")
        raise AssertionError(f"no {event}")

    def reload(self, text: str, event: str = "settings-reloaded") -> str:
        self.write(text)
        self.process.child.send_signal(signal.SIGHUP)
        return self.line(event).replace(str(self.file), "FILE")


def test_the_manager_is_told_of_ready_reload_and_stop(tmp_path: Path, manager: Manager) -> None:
    service = Service(tmp_path, "", environment={"NOTIFY_SOCKET": manager.address})
    with service.process as process:
        _, port = process.address()
        ready = manager.told()
        assert ready == {"READY": "1", "STATUS": f"node 1 listens on PLAINTEXT://127.0.0.1:{port}"}
        service.reload("sparklog.slow.request.ms=5\n")
        reloading = manager.told()
        assert reloading.pop("RELOADING") == "1"
        assert reloading.pop("MONOTONIC_USEC").isdecimal()
        assert (reloading, manager.told()) == ({}, ready)
        service.reload("sparklog.slow.request.ms=x\n", "settings-not-reloaded")
        assert (manager.told()["RELOADING"], manager.told()) == ("1", ready)
        code, _, _ = process.end(signal.SIGTERM)
        assert (code, manager.told()) == (0, {"STOPPING": "1", "STATUS": "stopping"})


def test_the_watchdog_hears_of_the_loop_at_half_of_its_interval(manager: Manager) -> None:
    chores: list[tuple[float, object]] = []
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}
    ServiceManager(environment, 7).watch(lambda delay_s, chore: chores.append((delay_s, chore)))
    assert (manager.raw(), [delay_s for delay_s, _ in chores]) == (b"WATCHDOG=1", [1.5])


@pytest.mark.parametrize("interval", ["", "0", "soon", "-1", "9" * 30])
@pytest.mark.parametrize("pid", ["7", "8"])
def test_without_an_interval_of_its_own_a_process_tells_no_watchdog(interval: str, pid: str) -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": interval, "WATCHDOG_PID": pid}
    ServiceManager(environment, 7).watch(lambda *_: pytest.fail("watched"))


def test_a_manager_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    service = Service(
        tmp_path, "", environment={"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "1000"}
    )
    with service.process as process:
        process.address()
        assert process.end(signal.SIGTERM)[0] == 0


def test_sighup_applies_what_can_change_and_names_what_waits(tmp_path: Path) -> None:
    service = Service(tmp_path, "num.partitions=2\n", environment={})
    with service.process as process:
        with Admin(bootstrap_servers=process.bootstrap_servers()) as admin:
            assert service.reload("num.partitions=3\nlog.retention.ms=1000\n") == (
                "settings-reloaded file=FILE changed=log.retention.ms overridden='' "
                "needs_restart=num.partitions"
            )
            told = admin.describe_configs(brokers=[1])["1"]
            assert (told["log.retention.ms"].value, told["log.retention.ms"].source) == (
                "1000",
                "STATIC_BROKER_CONFIG",
            )
            assert told["num.partitions"].value == "2"
            assert "changed='' overridden='' needs_restart=num.partitions" in service.reload(
                "num.partitions=3\nlog.retention.ms=1000\n"
            )
            assert "changed=log.retention.ms" in service.reload("num.partitions=2\n")
            assert admin.describe_configs(brokers=[1])["1"]["log.retention.ms"].value is None
        assert process.end(signal.SIGTERM)[0] == 0


def test_sighup_with_a_wrong_file_changes_nothing_and_says_why(tmp_path: Path) -> None:
    service = Service(tmp_path, "log.retention.ms=1000\n", environment={})
    with service.process as process:
        with Admin(bootstrap_servers=process.bootstrap_servers()) as admin:
            line = service.reload("log.retention.ms=2000\nno.such.key=1\n", "settings-not-reloaded")
            assert re.fullmatch(
                r"settings-not-reloaded file=FILE reason='unknown setting no\.such\.key \(FILE line 4\).*' "
                "level=ERROR",
                line,
            )
            assert admin.describe_configs(brokers=[1])["1"]["log.retention.ms"].value == "1000"
            service.file.unlink()
            process.child.send_signal(signal.SIGHUP)
            assert "cannot be read" in service.line("settings-not-reloaded")
        assert process.end(signal.SIGTERM)[0] == 0


def test_slow_requests_are_turned_on_by_sighup(tmp_path: Path) -> None:
    service = Service(tmp_path, "", "--set", "sparklog.log.format=json", environment={})
    with service.process as process:
        bootstrap_servers = process.bootstrap_servers()
        service.write("sparklog.slow.request.ms=1\n")
        process.child.send_signal(signal.SIGHUP)
        assert any('"message": "settings-reloaded"' in line for line in process.stderr)
        with Admin(bootstrap_servers=bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t")])
        _, _, err = process.end(signal.SIGTERM)
    # The commit of the topic waits for the disk.
    assert '"logger": "sparklog.requests", "message": "slow-request", "api": "CreateTopics"' in err


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = require_command("systemd-analyze")
    unit = tmp_path / UNIT.name
    program = shutil.which("true")
    text = UNIT.read_text().replace("/opt/sparklog/bin/sparklog", str(program))
    unit.write_text(text.replace("/bin/kill", str(shutil.which("kill") or program)))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_starts_the_program_with_a_file_that_sighup_reads_again() -> None:
    lines = dict(line.partition("=")[::2] for line in UNIT.read_text().splitlines() if "=" in line)
    _, verb, *options = lines["ExecStart"].split()
    assert (verb, options) == ("start", ["--config", "/etc/sparklog/broker.properties"])
    assert {option for parameter in start.params for option in parameter.opts} >= {"--config"}
    assert (lines["Type"], lines["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")
