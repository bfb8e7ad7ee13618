"""What every test run says about itself: which kernels serve, and what was skipped for want of a tool (the
closing `-rs` lines). Also where its temporary files lie, and which tests share a worker of pytest-xdist.

Under `CI=true` every tool is at hand, so a skipped test is a failure there, unless the machine itself is
what lacks something.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparklog import kernels
from tests.durations import DurationsOfFiles, recorded
from tests.properties import load_profile
from tests.tools import PROJECT

load_profile()

# Reasons that no set-up can mend.
OF_THE_MACHINE = ("this file system", "this system")
PATIENCE_S = 5.0
MEMORY_DISK = Path("/dev/shm")
MEMORY_DISK_FREE_MIN = 4 << 30

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary files into memory: on a disk, most of a broker's test is a wait for fsync.

    `TMPDIR` and `--basetemp` name another place.
    """
    if (
        "TMPDIR" not in os.environ
        and MEMORY_DISK.is_dir()
        and os.access(MEMORY_DISK, os.W_OK)
        and shutil.disk_usage(MEMORY_DISK).free >= MEMORY_DISK_FREE_MIN
    ):
        os.environ["TMPDIR"] = str(MEMORY_DISK)
        tempfile.tempdir = None  # read anew
    if getattr(config.option, "numprocesses", None) and config.option.markexpr == "not long":
        config.pluginmanager.register(DurationsOfFiles())


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """In memory like all temporary files; with the marker `disk`, on the disk of this source tree."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
        return
    build = PROJECT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        yield Path(directory)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """One queue of files for `-n`."""
    from tests.queue_of_files import QueueOfFiles

    return QueueOfFiles(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: "WorkerController") -> None:
    """All workers sort by the same durations."""
    node.workerinput["durations"] = recorded()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The queue begins with the longest, or keeps the order that `--random-order-seed` drew."""
    workerinput = getattr(config, "workerinput", None)
    # The plugin names its own seed where none was given. It is not installed for other Pythons.
    is_drawn = not config.getoption("random_order_seed", "default:").startswith("default:")
    if workerinput is not None and not is_drawn:
        from tests.queue_of_files import put_longest_first

        put_longest_first(items, workerinput["durations"])


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """A client that a test leaves open goes on dialling its stopped broker: what it logs and allocates falls
    into the tests that follow.
    """
    before = set(threading.enumerate())
    yield
    left = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("sparklog-") and thread not in before
    ]
    until = time.monotonic() + PATIENCE_S
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    assert not [thread.name for thread in left if thread.is_alive()]


def pytest_report_header() -> str:
    """Name the kernels once, at the top."""
    try:
        serving = kernels.implementation()
    except ImportError as error:
        return f"sparklog kernels: none ({error})"
    return f"sparklog kernels: {serving}" + (
        "" if serving == "compiled" else " (nothing was compiled: same answers, slower; see `make setup`)"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips itself in CI has failed."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_if_skipped_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """So has a whole file."""
    report = yield
    _fail_if_skipped_in_ci(report)
    return report


def _fail_if_skipped_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or os.environ.get("CI") != "true" or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not reason.startswith(OF_THE_MACHINE):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI has every tool: {reason}"
