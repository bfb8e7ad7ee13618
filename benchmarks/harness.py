"""Shared parts of the benchmarks: measurements and their table, and brokers to measure.

A benchmark is a module with `main()`:

    options = harness.options(__doc__, against=True)
    figures = harness.Figures("produce")
    for repeat in range(options.repeats):
        figures.add("one in flight p50", "µs", "sparklog", value, bound="<= 70")
    figures.report(options)

One row per `what`, one column per subject (`sparklog`, `kafka`, `compiled`, `prototype` …); the first
subject seen is the one that the others are compared with. A cell is `median [min–max]`.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PROJECT = Path(__file__).resolve().parent.parent
KAFKA_JARS = Path(os.environ.get("SPARKLOG_KAFKA_JARS", PROJECT / ".jars" / "kafka"))
KAFKA_HEAP = "-Xms1g -Xmx1g"  # the default of Kafka's start script
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}  # compiled files as pip leaves them


def options(
    description: str | None,
    *,
    against: bool = False,
    repeats: int = 3,
    more: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The arguments all benchmarks share: `.json`, `.repeats` and, where a real Kafka can run beside ours,
    `.against`; `more` adds those of one benchmark.
    """
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    parser.add_argument(
        "--repeats",
        type=int,
        default=repeats,
        metavar="N",
        help=f"measure N times and take the median (default {repeats})",
    )
    if against:
        parser.add_argument(
            "--against",
            choices=["kafka"],
            help="run the same load against a real Kafka (needs Java; see `make jars`)",
        )
        parser.add_argument("--only", choices=["kafka"], help=argparse.SUPPRESS)
    if more is not None:
        more(parser)
    return parser.parse_args()


# -- figures -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Figure:
    """All samples of one quantity for one subject."""

    what: str
    unit: str
    subject: str
    bound: str = ""
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


class Figures:
    """The measurements of one benchmark, in the order in which they were first added."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._figures: dict[tuple[str, str, str], Figure] = {}
        self._notes: list[str] = []

    def add(self, what: str, unit: str, subject: str, sample: float, *, bound: str = "") -> None:
        """One sample; `bound` is the promised limit of the subject's median, as text (`<= 70`)."""
        figure = self._figures.setdefault((what, unit, subject), Figure(what, unit, subject, bound))
        figure.samples.append(sample)

    def note(self, text: str) -> None:
        """A line under the table, printed once: durability setting, versions, differences of subjects."""
        if text not in self._notes:
            self._notes.append(text)

    def report(self, options: argparse.Namespace) -> None:
        """Print the table; write the JSON if `--json` asks for it."""
        print(self.table(), flush=True)
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n")

    def as_json(self) -> dict[str, object]:
        """Everything measured, with the machine it was measured on."""
        return {
            "benchmark": self.title,
            "machine": machine(),
            "notes": self._notes,
            "figures": [
                {
                    "what": f.what,
                    "unit": f.unit,
                    "subject": f.subject,
                    "bound": f.bound,
                    "median": f.median,
                    "samples": f.samples,
                }
                for f in self._figures.values()
            ],
        }

    def table(self) -> str:
        """The figures as text, one row per quantity, with the ratio of the first subject to each other."""
        subjects = list(dict.fromkeys(subject for _, _, subject in self._figures))
        quantities = list(dict.fromkeys((what, unit) for what, unit, _ in self._figures))
        rows = [
            [self.title, "unit", *subjects, *(f"{subjects[0]} / {other}" for other in subjects[1:]), "bound"]
        ]
        for what, unit in quantities:
            cells = [self._figures.get((what, unit, subject)) for subject in subjects]
            known = [figure for figure in cells if figure is not None]
            ratios = [
                f"{cells[0].median / other.median:.2f}" if cells[0] and other and other.median else ""
                for other in cells[1:]
            ]
            rows.append([what, unit, *map(_cell, cells), *ratios, _judged(known)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(
            [lines[0], "-" * len(lines[0]), *lines[1:], *(f"  {note}" for note in self._notes), ""]
        )


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if len(figure.samples) == 1:
        return _number(figure.median)
    return f"{_number(figure.median)} [{_number(min(figure.samples))}–{_number(max(figure.samples))}]"


def _judged(figures: Sequence[Figure]) -> str:
    """The bounds, and the subjects of ours that exceed them; a foreign broker has none."""
    promised = [figure for figure in figures if figure.bound and figure.subject != "kafka"]
    bounds = " · ".join(dict.fromkeys(figure.bound for figure in promised))
    missed = [figure.subject for figure in promised if not _holds(figure)]
    return f"{bounds}  MISSED by {', '.join(missed)}" if missed else bounds


def _holds(figure: Figure) -> bool:
    comparison, limit = figure.bound.split()[:2]
    return figure.median <= float(limit) if comparison == "<=" else figure.median >= float(limit)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of `samples`."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def machine() -> dict[str, object]:
    """The environment of a measurement: processor, cores, memory, system, Python."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


# -- brokers -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Subject:
    """A broker under measurement: its name, where it listens, and the process that pays for it."""

    name: str
    host: str
    port: int
    process: psutil.Process
    data_dir: Path
    start_s: float

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_s(self) -> float:
        """Processor seconds used so far, user and system, by the process and its children."""
        times = [process.cpu_times() for process in self._family()]
        return sum(t.user + t.system for t in times)

    def resident_bytes(self) -> int:
        """Resident memory now, of the process and its children."""
        return sum(process.memory_info().rss for process in self._family())

    def _family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


@contextmanager
def sparklog(
    settings: Mapping[str, str] | None = None,
    *,
    name: str = "sparklog",
    prelude: str = "",
    directory: Path | None = None,
) -> Iterator[Subject]:
    """A broker of ours on a port of its own; gone at the end. `prelude` is Python that its process runs
    first.

    Its data lie in a new directory, which is removed; or in `directory`, which stays as the broker left
    it, for the next start.
    """
    with ExitStack() as stack:
        data_dir = _directory(stack, directory, "sparklog-bench-")
        arguments = ["start", "--data-dir", str(data_dir / "data")]
        arguments += [] if "listeners" in (settings or {}) else ["--listen", "127.0.0.1:0"]
        for key, value in (settings or {}).items():
            arguments += ["--set", f"{key}={value}"]
        started = time.perf_counter()
        log = stack.enter_context((data_dir / "stderr").open("wb"))
        child = subprocess.Popen(
            [*sparklog_command(prelude), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=ENVIRONMENT,
        )
        stack.callback(_stop, child)
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line.startswith("ready "):
            child.wait(timeout=10)
            raise RuntimeError(
                f"sparklog start failed ({child.returncode}): {(data_dir / 'stderr').read_text()[-2000:]}"
            )
        words = dict(word.split("=", 1) for word in line.split()[1:])
        host, port = words["listen"].rsplit(":", 1)
        yield Subject(
            name,
            host,
            int(port),
            psutil.Process(int(words["pid"])),
            data_dir / "data",
            time.perf_counter() - started,
        )


def sparklog_command(prelude: str = "") -> list[str]:
    """How to run the command line of the sparklog that this interpreter imports, in a process that runs
    `prelude` first.
    """
    return [
        sys.executable,
        "-c",
        f"{prelude}\nfrom sparklog_server.cli.program import run; run()",
    ]


def _directory(stack: ExitStack, directory: Path | None, prefix: str) -> Path:
    if directory is not None:
        return directory
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)))


@contextmanager
def kafka(
    settings: Mapping[str, str] | None = None,
    *,
    heap: str = KAFKA_HEAP,
    node_id: int = 1,
    directory: Path | None = None,
    more_listeners: Sequence[str] = (),
) -> Iterator[Subject]:
    """A real Kafka, controller and broker in one process, from the jars that `make jars` fetched; gone at
    the end. It listens on `more_listeners` too.

    Its data lie in a new directory, which is removed; or in `directory`, which stays as the broker left
    it, for the next start.
    """
    if not kafka_is_available():
        raise RuntimeError(f"no Java, or no Kafka jars in {KAFKA_JARS}: run `make jars`")
    with ExitStack() as stack:
        directory = _directory(stack, directory, "kafka-bench-")
        port, controller_port = free_port(), free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
            "listeners": ",".join(
                (
                    f"PLAINTEXT://127.0.0.1:{port}",
                    f"CONTROLLER://127.0.0.1:{controller_port}",
                    *more_listeners,
                )
            ),
            "advertised.listeners": ",".join((f"PLAINTEXT://127.0.0.1:{port}", *more_listeners)),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        command = formatted_kafka(directory, properties, heap=heap)
        started = time.perf_counter()
        log = stack.enter_context((directory / "server.log").open("wb"))
        child = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(_stop, child)
        wait_for_metadata("127.0.0.1", port, child)
        yield Subject(
            "kafka",
            "127.0.0.1",
            port,
            psutil.Process(child.pid),
            directory / "data",
            time.perf_counter() - started,
        )


def formatted_kafka(directory: Path, properties: Mapping[str, str], *, heap: str = KAFKA_HEAP) -> list[str]:
    """Format a node of Kafka with these properties in a directory; the command that starts it."""
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    format_storage = java(
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        "-t",
        "sparklogBenchAAAAAAAAA",
        "-c",
        str(config),
    )
    subprocess.run(format_storage, check=True, capture_output=True, timeout=START_TIMEOUT_S)
    return java("kafka.Kafka", str(config), heap=heap)


def subjects(
    options: argparse.Namespace,
    *,
    flush: Sequence[str] = ("never",),
    preludes: Mapping[str, str] | None = None,
) -> Iterator[Subject]:
    """Our broker, once for each way to flush and each named prelude, then, with `--against kafka`, a real
    one.

    Never two at once, so that neither pays for the other. Kafka's own default is `never`:
    replies do not wait for the disk.
    """
    if options.only != "kafka":
        for mode in flush:
            with sparklog(
                {"sparklog.ack.flush": mode}, name=f"sparklog {mode}" if len(flush) > 1 else "sparklog"
            ) as subject:
                yield subject
        for name, prelude in (preludes or {}).items():
            with sparklog({"sparklog.ack.flush": flush[0]}, name=name, prelude=prelude) as subject:
                yield subject
    if options.against == "kafka" or options.only == "kafka":
        with kafka() as subject:
            yield subject


def create_topic(
    subject: Subject, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> None:
    """A new topic with one replica; returns when its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(settings or {}))])[name].result(
        timeout=START_TIMEOUT_S
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        topic = admin.list_topics(name, timeout=10).topics[name]
        if (
            topic.error is None
            and len(topic.partitions) == partitions
            and all(p.leader >= 0 for p in topic.partitions.values())
        ):
            return
        time.sleep(0.02)
    raise RuntimeError(f"topic {name} has no leaders after {START_TIMEOUT_S:.0f} s")


def kafka_is_available() -> bool:
    """Whether a real Kafka can be started here."""
    return shutil.which("java") is not None and any(KAFKA_JARS.glob("kafka_2.13-*.jar"))


def java(main_class: str, *arguments: str, heap: str = "-Xmx256m") -> list[str]:
    """The command that runs a class of Kafka's with Kafka's own choice of collector."""
    return [
        "java",
        *heap.split(),
        *"-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -Djava.awt.headless=true".split(),  # noqa: E501
        f"-Dlog4j2.configurationFile={PROJECT / 'conf' / 'kafka-tools-log4j2.properties'}",
        "-cp",
        f"{KAFKA_JARS}/*",
        main_class,
        *arguments,
    ]


def free_port() -> int:
    """A free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


METADATA_OF_NOTHING = struct.pack(
    ">ihhih1si", 15, 3, 1, 7, 1, b"w", 0
)  # Metadata v1, client id "w", no topics


def wait_for_metadata(host: str, port: int, child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Return when the broker answers a Metadata request that names at least one broker; raise if it exits
    or takes a minute.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise RuntimeError(f"the broker exited with {child.returncode} before it answered")
        try:
            with socket.create_connection((host, port), timeout=2) as connection:
                connection.sendall(METADATA_OF_NOTHING)
                reply = connection.recv(65536)
        except OSError:
            reply = b""
        if len(reply) >= 12 and struct.unpack_from(">i", reply, 8)[0] > 0:
            return
        time.sleep(0.01)
    raise RuntimeError(f"no answer from {host}:{port} within {START_TIMEOUT_S:.0f} s")


def _stop(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()
