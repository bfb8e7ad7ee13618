"""The console in front of a broker: the time of its pages, the processor time of a live tail, its memory.

The tail follows a topic to which 1 000 records/s of 200 bytes of JSON are written, at the default limit of
rows and at 1 000 rows/s.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse

import psutil

import sparklog
from benchmarks import harness

PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
READY_S_MAX = 60
PAGES = ("/", "/topics", "/topics/busy", "/topics/busy/records", "/groups", "/settings")
REQUESTS = 20
RATE = 1_000
TAIL_S = 15.0
MANY = 10_000


def main() -> None:
    options = harness.options(__doc__, repeats=3)
    figures = harness.Figures("console")
    for _ in range(options.repeats):
        with sparklog.embedded() as broker:
            measure(figures, broker.bootstrap_servers)
            many(figures, broker.bootstrap_servers)
    figures.report(options)


def measure(figures: harness.Figures, servers: str) -> None:
    with sparklog.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({"busy": 3})
    with running(servers) as (process, url):
        figures.add("first page after the start", "ms", "sparklog", timed(url), bound="<= 100")
        for path in PAGES:
            times = sorted(timed(url.rstrip("/") + path) for _ in range(REQUESTS))
            figures.add(f"page {path}", "ms", "sparklog", times[len(times) // 2], bound="<= 100")
        with writing(servers):
            for rate in (50, RATE):
                share = tail(process, f"{url}topics/busy/tail?rate={rate}")
                what = f"tail of {RATE} records/s, {rate} rows/s, of one core"
                figures.add(what, "%", "sparklog", share, bound="<= 10")
        figures.add("resident memory", "MB", "sparklog", process.memory_info().rss / 1e6, bound="<= 80")


def many(figures: harness.Figures, servers: str) -> None:
    with sparklog.Admin(bootstrap_servers=servers, default_api_timeout_ms=300_000) as admin:
        for start in range(0, MANY, 500):
            admin.create_topics({f"many-{number:05}": 1 for number in range(start, start + 500)})
    with running(servers) as (process, url):
        timed(url)
        for path in ("/", "/topics?q=77", "/topics?page=150"):
            times = sorted(timed(url.rstrip("/") + path) for _ in range(5))
            figures.add(f"{MANY} topics: page {path}", "ms", "sparklog", times[2])
        figures.add(f"{MANY} topics: resident memory", "MB", "sparklog", process.memory_info().rss / 1e6)


@contextmanager
def running(servers: str) -> Iterator[tuple[psutil.Process, str]]:
    """A console, and its address."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "console", "--bootstrap-server", servers, "--port", "0"],
        stdout=subprocess.PIPE,
        env=os.environ,
    )
    assert child.stdout is not None
    try:
        assert select.select([child.stdout], [], [], READY_S_MAX)[0], "the console did not start"
        line = child.stdout.readline().decode()
        yield psutil.Process(child.pid), line.partition("console=")[2].split()[0]
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


def timed(url: str) -> float:
    """The time of one page, in ms, on a new connection."""
    begun = time.perf_counter()
    with urllib.request.urlopen(url) as response:
        response.read()
    return (time.perf_counter() - begun) * 1e3


def tail(process: psutil.Process, url: str) -> float:
    """The processor time of the console while one browser follows the topic, in percent of a core."""
    response: HTTPResponse
    with urllib.request.urlopen(url) as response:
        read_for(response, 3.0)
        before = cpu_s(process)
        seconds = read_for(response, TAIL_S)
        return (cpu_s(process) - before) / seconds * 100


def read_for(response: HTTPResponse, seconds: float) -> float:
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        assert response.readline()
    return time.monotonic() - begun


def cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


@contextmanager
def writing(servers: str) -> Iterator[None]:
    """Write `RATE` records a second."""
    done = threading.Event()

    def write() -> None:
        with sparklog.Producer(bootstrap_servers=servers) as producer:
            written, begun = 0, time.monotonic()
            while not done.wait(0.01):
                while written < (time.monotonic() - begun) * RATE:
                    value = {"number": written, "airline": "UA", "from": "SFO", "to": "JFK", "pad": "x" * 140}
                    producer.send("busy", json.dumps(value), f"UA{written % 100}")
                    written += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main()
