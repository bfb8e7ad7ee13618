"""From `sparklog start` to the first answered Metadata request: an empty directory, and again with the
files of the first run.

Files are in the page cache, and Python's compiled files are there, as pip leaves them. The processor time
is that of the broker's process until then.
"""

import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness

RUNS = 10


def start(data_dir: Path) -> tuple[float, float]:
    """Milliseconds until Metadata is answered, wall and processor; then a clean stop."""
    arguments = ["start", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
    started_s = time.perf_counter()
    child = subprocess.Popen(
        [*harness.sparklog_command(), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=harness.ENVIRONMENT,
    )
    try:
        assert child.stdout is not None
        words = dict(word.split("=", 1) for word in child.stdout.readline().split()[1:])
        host, port = words["listen"].rsplit(":", 1)
        harness.wait_for_metadata(host, int(port), child)
        wall_s = time.perf_counter() - started_s
        used = harness.psutil.Process(child.pid).cpu_times()
        return wall_s * 1000, (used.user + used.system) * 1000
    finally:
        child.terminate()
        child.wait(timeout=15)
        if child.stdout is not None:
            child.stdout.close()


def warm_up() -> None:
    """Once unmeasured: the compiled files are written."""
    with TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as directory:
        start(Path(directory) / "data")


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("startup")
    if options.only != "kafka":
        warm_up()
        for _ in range(options.repeats):
            with TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as directory:
                for what in ("first start, to Metadata", "second start, to Metadata"):
                    wall_ms, cpu_ms = start(Path(directory) / "data")
                    figures.add(what, "ms", "sparklog", wall_ms, bound="<= 250")
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
