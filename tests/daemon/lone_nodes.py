"""A supervisor of lone nodes, each a cluster of its own: `python -m tests.daemon.lone_nodes DIR COUNT`.

The arguments after them are settings of every node. With `fail=N`, node N ends before it is ready.
A node is refused while DIR/refused-N exists; DIR/attempts has a byte for each time.
"""

import gc
import sys
from pathlib import Path

from sparklog_server.config.load import Loaded, load
from sparklog_server.daemon.local_cluster import as_options
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.node import run_node
from sparklog_server.daemon.supervisor import NodeRefused, Ports, Supervisor


def main() -> int:
    directory, count, *given = sys.argv[1:]
    failing = [one.partition("=")[2] for one in given if one.startswith("fail=")]
    assignments = [one for one in given if not one.startswith("fail=")]
    ports = Ports()

    def run(loaded: Loaded, log: TraceLog, parent_pid: int) -> int:
        if str(loaded.settings.node_id) in failing:
            return 3
        refused = Path(directory, f"refused-{loaded.settings.node_id}")
        if refused.exists():
            with Path(directory, "attempts").open("a") as attempts:
                attempts.write("x")
            raise NodeRefused(refused.read_text())
        return run_node(loaded.settings, loaded.warnings, log, remedy="", parent_pid=parent_pid)

    settings = {
        number: [
            *assignments,
            *(f"node.id={number}", f"log.dirs={directory}/node-{number}"),
            f"listeners=PLAINTEXT://127.0.0.1:{ports.reserve(0)}",
        ]
        for number in range(1, int(count) + 1)
    }
    nodes = [load(None, own) for own in settings.values()]
    options = {number: as_options(own) for number, own in settings.items()}
    gc.freeze()
    log = TraceLog(sys.stderr)
    return Supervisor(nodes, run, log, cluster_id="lone", directory=directory, options=options).run()


if __name__ == "__main__":
    sys.exit(main())
