"""Attack three nodes in namespaces of their own for a while, and judge what their clients were told.

    unshare --map-root-user --net --mount python -m tests.live.attack --directory DIR --seconds 60

Prints each fault, then the counts of the history and its violations; exits with 1 if there are any. The
directory keeps the logs of the nodes.
"""

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import harness, trio
from tests.live import clients
from tests.live.faults import FAULTS, Attacked, shim
from tests.live.history import violations
from tests.live.load import COPIES, PARTITIONS, TOPICS, Load, stored
from tests.live.networks import mount_memory, networks
from tests.live.relay import copy_in_classic_group, copy_in_modern_group
from tests.live.replicas import differences
from tests.live.verifiable import replica_violations, verify

SMALL_BYTES = 512 * 2**20
CALM_S = (1.0, 4.0)
CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
CLIENTS: Final = (
    clients.produce_by_librdkafka,
    clients.produce_by_sparklog,
    clients.produce_by_aiokafka,
    clients.transact,
    clients.consume_in_classic_group,
    clients.consume_in_modern_group,
    clients.consume_by_sparklog,
    copy_in_classic_group,
    copy_in_modern_group,
)
KINDS = {"sparklog": trio.own_nodes, "kafka": trio.kafka_nodes}


def main() -> int:
    options = _options()
    directory = options.directory
    library = shim(directory)
    small = directory / "node-1" / "data"
    mount_memory(small, SMALL_BYTES)
    stall = directory / "stall"
    with networks() as found:
        places = {
            number: trio.Place(network.host, CLIENT_PORT, CONTROLLER_PORT, network.prefix)
            for number, network in found.items()
        }
        nodes = KINDS[options.kind](directory, places)
        nodes[2].environment = {"LD_PRELOAD": str(library), "STALL_FILE": str(stall)}
        with trio.running(options.kind, nodes) as cluster:
            for topic in TOPICS:
                leaders = [number % trio.COUNT + 1 for number in range(PARTITIONS)]
                cluster.create(topic, [trio.ordered(leader) for leader in leaders])
            attacked = Attacked(cluster, found, small, stall, random.Random(options.seed))
            return _judged(attacked, options.faults, options.seconds)


def _judged(attacked: Attacked, names: list[str], seconds: float) -> int:
    has_tools = harness.kafka_is_available()
    load = Load(attacked.cluster.bootstrap_servers, (*CLIENTS, verify) if has_tools else CLIENTS)
    until_s = time.monotonic() + seconds
    with load.running():
        number = 0
        while time.monotonic() < until_s:
            attacked.lasts(CALM_S)
            name = names[number % len(names)]
            began_s = time.monotonic()
            hit = FAULTS[name](attacked)
            print(f"fault={name} hit={hit} took_s={time.monotonic() - began_s:.1f}", flush=True)
            number += 1
            for topic in TOPICS:
                attacked.cluster.restore(topic)
            print(f"restored after_s={time.monotonic() - began_s:.1f}", flush=True)
        attacked.lasts(CALM_S)
    history = load.history
    values = stored(load.servers)
    found = [*history.failures, *violations(history, values, COPIES)]
    if has_tools:
        found += replica_violations(load.servers, TOPICS)
    found += differences(attacked.cluster.nodes, TOPICS)
    copied = sum(len(each) for at, each in values.items() if at.topic in COPIES)
    print(
        f"acknowledged={len(history.acknowledged)} seen={len(history.seen)} copied={copied} "
        f"commits={len(history.commits)} committed={len(history.committed)} aborted={len(history.aborted)} "
        f"violations={len(found)}"
    )
    for line in found[:100]:
        print(line)
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600, metavar="S", help="how long to attack")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults")
    parser.add_argument("--kind", choices=list(KINDS), default="sparklog", help="of the nodes")
    parser.add_argument("--directory", type=Path, required=True, help="of the nodes; it is empty")
    parser.add_argument(
        "--faults",
        type=lambda text: text.split(","),
        default=list(FAULTS),
        metavar="NAME,…",
        help="in this order, again and again",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
