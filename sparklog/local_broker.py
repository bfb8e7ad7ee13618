"""A private broker, or a cluster of several nodes: a child process in a temporary directory. It ends when its
parent ends, even by `kill -9`.

The child's standard input is a pipe that only this process holds open: at end of file the child stops. It
also watches the parent's pid, in case another fork of the parent keeps the pipe open. The last process to end
removes the directory.
"""

import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.client.settings import CommonOptions

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 10.0
_ASKED_EVERY_S: Final = 0.005

Setting = str | int | float | bool | Iterable[str]


class BrokerNotStarted(SparklogError):
    """The child ended or timed out before it was ready; the message has its log."""


class EmbeddedBroker:
    """A running broker that this process owns; `close`, the end of a `with` block or of the process ends it.

    Listens on 127.0.0.1, on a free port. All data is in a temporary directory, which is removed at the end,
    unless the caller set `data_dir`, which stays. With several nodes, the child is their supervisor, which
    starts a node again when it ends; `bootstrap_servers` has the address of each node, and `pids` has the
    process of each at the start, in order of node ids.

    A secure broker is one that `sparklog init --secure` prepares in `data_dir`: `client_settings` has its
    address, authority and administrator, and `data_dir` the same for other clients, in `client.properties`
    and `client.conf`.
    """

    bootstrap_servers: str
    client_settings: "CommonOptions"
    """The arguments with which a Producer, Consumer or Admin connects."""
    data_dir: Path
    pid: int
    pids: tuple[int, ...]

    def __init__(
        self,
        settings: Mapping[str, Setting],
        *,
        nodes: int = 1,
        data_dir: Path | None = None,
        secure: bool = False,
    ) -> None:
        _require_server()
        directory = Path(tempfile.mkdtemp(prefix="sparklog-"))
        self.data_dir = directory / "data" if data_dir is None else data_dir
        self._log_path = directory / "broker.log"
        with self._log_path.open("wb") as log:
            self._child = subprocess.Popen(
                _command(directory, self.data_dir, settings, nodes, is_secure=secure),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
                # A session of its own: Ctrl-C in a terminal or a notebook is for the parent alone.
                start_new_session=True,
            )
        self.pid = self._child.pid
        self._is_supervised = nodes > 1 or secure
        # Runs once: at close, when the object is collected, or at the end of the interpreter.
        self._end = weakref.finalize(self, _end, self._child, directory, os.getpid())
        try:
            ready = self._wait_until_ready()
            self.bootstrap_servers = ready["listen"]
            self.pids = tuple(int(pid) for pid in ready["pids" if self._is_supervised else "pid"].split(","))
            self.client_settings = {"bootstrap_servers": self.bootstrap_servers}
            if secure:
                self.client_settings = _client_settings(self.data_dir)
            if nodes > 1:
                _wait_until_known(self.bootstrap_servers.split(","), self.client_settings)
        except BaseException:
            self._end()
            raise

    def log(self) -> str:
        """The broker's log so far."""
        return self._log_path.read_text(errors="replace")

    def kill(self) -> None:
        """End every node as a crash would, at once; `data_dir` stays as it is until `close`."""
        self._child.send_signal(signal.SIGQUIT if self._is_supervised else signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        """Stop the broker cleanly and remove its temporary directory; a second call has no effect."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_until_ready(self) -> dict[str, str]:
        """The words of the ready line."""
        assert self._child.stdout is not None
        line = _first_line(self._child.stdout.fileno(), deadline_s=time.monotonic() + START_S_MAX)
        self._child.stdout.close()
        words = dict(word.partition("=")[::2] for word in line.split())
        if not line.startswith("ready ") or "listen" not in words:
            self._child.kill()
            raise BrokerNotStarted(
                f"the embedded broker did not start (exit code "
                f"{self._child.wait()}):\n{self.log()[-4000:].strip()}"
            )
        return words


def _client_settings(data_dir: Path) -> "CommonOptions":
    """The settings of the administrator of a secure cluster."""
    import tomllib  # at its only use

    settings: CommonOptions = tomllib.loads((data_dir / "client.toml").read_text())  # type: ignore[assignment]
    return settings


def _wait_until_known(addresses: list[str], settings: "CommonOptions") -> None:
    """Wait until every node shows every other one: each learns a moment later that the others are ready."""
    from sparklog.client.admin.admin import Admin  # at its only use: one broker is known to itself

    until_s = time.monotonic() + START_S_MAX
    for address in addresses:
        own: CommonOptions = {**settings, "bootstrap_servers": address}
        with Admin(**own) as admin:
            while len(admin.describe_cluster().nodes) < len(addresses):
                if time.monotonic() > until_s:
                    raise BrokerNotStarted(f"the node at {address} does not show all nodes of the cluster")
                time.sleep(_ASKED_EVERY_S)


def embedded(
    *,
    nodes: int = 1,
    data_dir: str | os.PathLike[str] | None = None,
    secure: bool = False,
    **settings: Setting,
) -> EmbeddedBroker:
    """Start a private broker, or a cluster of several nodes, and return once it accepts requests.

    With `secure`, clients connect by TLS with a password, access rules apply, and `client_settings` is the
    administrator: `Producer(**broker.client_settings)`. `settings` are broker settings by Kafka's names with
    `_` for `.`: `embedded(num_partitions=4, sparklog_ack_flush="never")`. Raises ImportError without the
    `server` extra, and BrokerNotStarted with the end of the child's log.
    """
    return EmbeddedBroker(
        settings,
        nodes=nodes,
        data_dir=None if data_dir is None else Path(data_dir).absolute(),
        secure=secure,
    )


def _require_server() -> None:
    if sys.platform == "win32":
        raise SparklogError(
            "a broker runs on Linux and macOS only; from Windows, connect to one that runs elsewhere (WSL "
            "serves well)"
        )
    missing = [name for name in ("sparklog_server", "click") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"sparklog.embedded() needs the server ({', '.join(missing)} missing): pip install "
            f"'sparklog[server]'"
        )


def _command(
    directory: Path, data_dir: Path, settings: Mapping[str, Setting], nodes: int, *, is_secure: bool
) -> list[str]:
    # -P: a file in the working directory must not shadow a module of sparklog. PYTHONPATH gives the child
    # the path of this process.
    run = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
    several = ["cluster", "start", "--nodes", str(nodes), "--base-port", "0"]
    if is_secure:
        verb = [*several, "--init", "--config-dir", str(data_dir)]
    elif nodes == 1:
        verb = ["start", "--listen", "127.0.0.1:0", "--data-dir", str(data_dir)]
    else:
        verb = [*several, "--data-dir", str(data_dir)]
    command = [sys.executable, "-P", "-c", run, *verb]
    command += ["--owner-pid", str(os.getpid()), "--owned-directory", str(directory)]
    for name, value in settings.items():
        command += ["--set", f"{name.replace('_', '.')}={_text(value)}"]
    return command


def _text(value: Setting) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(value)


def _first_line(descriptor: int, *, deadline_s: float) -> str:
    """The first line that arrives; less if the other end closes or the timeout passes."""
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
        received = os.read(descriptor, 4096) if readable else b""
        if not received:
            break
        line += received
    return line.decode(errors="replace")


def _end(child: subprocess.Popen[bytes], directory: Path, owner_pid: int) -> None:
    """Stop the child, first with SIGTERM, and remove its directory. Has no effect in a fork of the owner."""
    if os.getpid() != owner_pid:
        return
    if child.stdout is not None:
        child.stdout.close()
    child.terminate()
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    shutil.rmtree(directory, ignore_errors=True)
