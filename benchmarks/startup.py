"""From `sparklog start` to the first answered Metadata request: an empty directory, and again with the
files of the first run. And to the ready line of a node that `sparklog init --secure` has prepared.

Files are in the page cache, and Python's compiled files are there, as pip leaves them. The processor time
is that of the broker's process until then.
"""

import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness

RUNS = 10


def start(*arguments: str, is_plain: bool = True) -> tuple[float, float]:
    """Milliseconds until Metadata is answered on a plain listener, or until the ready line, wall and
    processor; then a clean stop.
    """
    started_s = time.perf_counter()
    child = subprocess.Popen(
        [*harness.sparklog_command(), "start", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=harness.ENVIRONMENT,
    )
    try:
        assert child.stdout is not None
        words = dict(word.split("=", 1) for word in child.stdout.readline().split()[1:])
        host, port = words["listen"].rsplit(":", 1)
        if is_plain:
            harness.wait_for_metadata(host, int(port), child)
        wall_s = time.perf_counter() - started_s
        used = harness.psutil.Process(child.pid).cpu_times()
        return wall_s * 1000, (used.user + used.system) * 1000
    finally:
        child.terminate()
        child.wait(timeout=15)
        if child.stdout is not None:
            child.stdout.close()


def plain(directory: str) -> tuple[float, float]:
    """A broker alone, with its data in this directory."""
    return start("--data-dir", f"{directory}/data", "--listen", "127.0.0.1:0")


def secure(directory: str) -> tuple[float, float]:
    """A node with TLS, SCRAM and access rules, prepared at the first call."""
    root = Path(directory) / "secure"
    if not root.exists():
        subprocess.run(
            [*harness.sparklog_command(), "init", "--secure", str(root), "--base-port", "0"],
            stdout=subprocess.DEVNULL,
            check=True,
            env=harness.ENVIRONMENT,
        )
    return start("--config", str(root / "node-1.properties"), is_plain=False)


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("startup")
    if options.only != "kafka":
        for repeat in range(-1, options.repeats):
            with TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as directory:
                for which in ("first start", "second start"):
                    for what, run, bound in (
                        (f"{which}, to Metadata", plain, "<= 250"),
                        (f"{which} with TLS, SCRAM and access rules, to ready", secure, "<= 300"),
                    ):
                        wall_ms, cpu_ms = run(directory)
                        if repeat >= 0:  # once unmeasured: the compiled files are written
                            figures.add(what, "ms", "sparklog", wall_ms, bound=bound)
                            figures.add(f"{what}: processor", "ms", "sparklog", cpu_ms)
    if options.against == "kafka" or options.only == "kafka":
        for _ in range(min(options.repeats, 3)):
            with harness.kafka() as subject:
                figures.add("first start, to Metadata", "ms", "kafka", subject.start_s * 1000)
    figures.note(
        "Kafka's directory is formatted beforehand, by a program of its own; sparklog formats its own within "
        "the time"
    )
    figures.report(options)


if __name__ == "__main__":
    main()
