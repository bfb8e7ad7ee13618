"""Changes of the nodes of a running cluster, by rows.

`voters`: a quorum of one voter has 100 000 records of metadata, and a second controller with an empty
directory joins it: from the start of its process until it is a voter, by
`controller.quorum.auto.join.enable`, and from AddRaftVoter of one that follows until that is committed.
"""

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness
from benchmarks.trio import wait_until
from sparklog import Admin
from sparklog.client.admin.quotas import QuotaEntity
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import NodeId

RUNS = 5
RECORDS = 100_000
_PER_REQUEST = 2_000
_CLUSTER_ID = "Vz8jG3mXQhWj4kq0Zk2v3A"


class Growing:
    """The first voter, and controllers that come to it one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.controllers = [harness.free_port()]
        self.broker = harness.free_port()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first node."""
        return f"127.0.0.1:{self.broker}"

    @contextmanager
    def node(self, number: int, way: str, settings: Mapping[str, str]) -> Iterator[float]:
        """Format a node and start it; the moment of the start, by `time.perf_counter`."""
        broker = self.broker if number == 1 else harness.free_port()
        if number > 1:
            self.controllers.append(harness.free_port())
        given = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{self.controllers[-1]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controllers[0]}",
            "log.dirs": str(self.root / f"node-{number}"),
            **settings,
        }
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        command = harness.sparklog_command()
        formatting = [*command, "format", "--cluster-id", _CLUSTER_ID, way, *words]
        subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL, env=harness.ENVIRONMENT)
        began_s = time.perf_counter()
        child = subprocess.Popen(
            [*command, "start", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=harness.ENVIRONMENT,
        )
        with child:
            try:
                yield began_s
            finally:
                child.kill()


def voters(figures: harness.Figures, repeats: int) -> None:
    """A second voter joins a quorum with many records."""
    with TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as root:
        growing = Growing(Path(root))
        with growing.node(1, "--standalone", {}), Admin(bootstrap_servers=growing.bootstrap_servers) as admin:
            for first in range(0, RECORDS, _PER_REQUEST):
                users = range(first, first + _PER_REQUEST)
                quota = {"producer_byte_rate": 1e6}
                admin.alter_client_quotas({QuotaEntity.of(user=f"user-{user}"): quota for user in users})
            for run in range(repeats):
                number = 2 * run + 2
                joining = {"controller.quorum.auto.join.enable": "true"}
                with growing.node(number, "--no-initial-controllers", joining) as began_s:
                    wait_until(lambda: number in ids(admin))  # noqa: B023 - called in this round
                    # Committed by both voters, of which neither is a majority.
                    admin.alter_client_quotas({QuotaEntity.of(user="user-0"): {"producer_byte_rate": 2e6}})
                    figures.add(
                        "a controller starts and joins, 100 000 records: votes after",
                        "ms",
                        "sparklog",
                        (time.perf_counter() - began_s) * 1000,
                        bound="<= 2000",
                    )
                    leave(admin, number)
                with growing.node(number + 1, "--no-initial-controllers", {}):
                    wait_until(lambda: is_caught_up(admin, number + 1))  # noqa: B023
                    began_s = time.perf_counter()
                    add(admin, number + 1, growing.controllers[-1])
                    figures.add(
                        "AddRaftVoter of a controller that follows",
                        "ms",
                        "sparklog",
                        (time.perf_counter() - began_s) * 1000,
                    )
                    leave(admin, number + 1)


def ids(admin: Admin) -> list[int]:
    """The voters."""
    return [one.node_id for one in admin.describe_quorum().voters]


def is_caught_up(admin: Admin, node: int) -> bool:
    """Whether an observer has reached the end of the log."""
    return any(one.node_id == node and one.last_caught_up_ms > 0 for one in admin.describe_quorum().observers)


def add(admin: Admin, node: int, port: int) -> None:
    """Make an observer a voter."""
    found = next(one for one in admin.describe_quorum().observers if one.node_id == node)
    admin.add_raft_voter(NodeId(node), found.directory_id, [("CONTROLLER", "127.0.0.1", port)])


def leave(admin: Admin, node: int) -> None:
    """Remove a voter, once the change before is over."""

    def is_gone() -> bool:
        found = next((one for one in admin.describe_quorum().voters if one.node_id == node), None)
        if found is None:
            return True
        try:
            admin.remove_raft_voter(NodeId(node), found.directory_id)
        except BrokerError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return False
        return True

    wait_until(is_gone)


ROWS: Mapping[str, Callable[[harness.Figures, int], None]] = {"voters": voters}


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--row", choices=list(ROWS), action="append", help="measure these rows only")


def main() -> None:
    options = harness.options(__doc__, repeats=RUNS, more=_more)
    figures = harness.Figures("moving")
    for name in options.row or ROWS:
        ROWS[name](figures, options.repeats)
    figures.report(options)


if __name__ == "__main__":
    main()
