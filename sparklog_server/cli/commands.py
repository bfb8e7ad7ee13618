"""The table of the commands: the help of the program shows it without importing any."""

from typing import Final, NamedTuple


class Place(NamedTuple):
    """The module of a command, its name in it, and its line in the help: the first sentence of its own."""

    module: str
    name: str
    help: str


COMMANDS: Final = {
    "start": Place(
        "start",
        "start",
        "Run a broker until SIGTERM or Ctrl-C; SIGHUP reads the file of --config again, else it stops.",
    ),
    "format": Place(
        "format",
        "format_directories",
        "Format the directories of a node, as `kafka-storage format` does.",
    ),
    "init": Place(
        "init",
        "init",
        "Prepare a secure cluster, and print the commands that come next.",
    ),
    "certificates": Place(
        "certificates",
        "certificates",
        "Show, renew and add the certificates of a secure cluster.",
    ),
    "topics": Place(
        "topics",
        "topics",
        "Create, list, describe, alter and delete topics, and delete their records.",
    ),
    "partitions": Place(
        "partitions",
        "partitions",
        "Elect the leaders of partitions.",
    ),
    "offsets": Place(
        "offsets",
        "offsets",
        "Show the offsets of partitions.",
    ),
    "configs": Place(
        "configs",
        "configs",
        "Show, set and delete settings of topics, brokers, loggers, groups and client metrics.",
    ),
    "groups": Place(
        "groups",
        "groups",
        "List and describe groups, and move or delete their committed offsets.",
    ),
    "transactions": Place(
        "transactions",
        "transactions",
        "List and describe transactions, and end hanging ones.",
    ),
    "produce": Place(
        "produce",
        "produce",
        "Write each line of FILEs, or of standard input, to TOPIC as one record.",
    ),
    "consume": Place(
        "consume",
        "consume",
        "Print the records of TOPICs, one line each, until Ctrl-C.",
    ),
    "sql": Place(
        "sql",
        "sql",
        "Run a QUERY in DuckDB's SQL over topics.",
    ),
    "cluster": Place(
        "cluster",
        "cluster",
        "Start a cluster on this machine; show its state, the metadata quorum and features.",
    ),
    "log-dirs": Place(
        "storage",
        "log_dirs",
        "Show the log directories of brokers, and move replicas between them.",
    ),
    "producers": Place(
        "storage",
        "producers",
        "Show the producers known to partitions: a hanging transaction has an old time and a first offset.",
    ),
    "quotas": Place(
        "quotas",
        "quotas",
        "Show, set and delete quotas of users, client ids and addresses.",
    ),
    "users": Place(
        "users",
        "users",
        "Add, list and remove users, and change their passwords.",
    ),
    "acls": Place(
        "acls",
        "acls",
        "Add, list, remove and explain access rules.",
    ),
    "profile": Place(
        "profile",
        "profile",
        "Create, select and show profiles: named client settings.",
    ),
    "console": Place(
        "console",
        "console",
        "Serve the console: pages for topics, records, groups and settings of any cluster that "
        "speaks Kafka's protocol.",
    ),
    "status": Place(
        "status",
        "status",
        "Show the cluster on one screen: brokers, release, uptime, topics, lag, disks and last events.",
    ),
    "top": Place(
        "top",
        "top",
        "Show rates by topic, the slowest requests, the lag of groups, and disks, until Ctrl-C.",
    ),
    "health": Place(
        "health",
        "health",
        "Check the cluster: partitions, controllers, brokers, disks, settings, certificates, "
        "clocks and groups.",
    ),
    "selftest": Place(
        "selftest",
        "selftest",
        "Measure disk, loopback network and processor, and a producer in front of a broker of its own.",
    ),
    "tune": Place(
        "tune",
        "tune",
        "Compare settings of this machine with what a broker needs: value, advice and reason.",
    ),
    "debug": Place(
        "debug",
        "debug",
        "Gather what is needed to find the cause of a problem.",
    ),
    "bench": Place(
        "bench",
        "bench",
        "Measure a Kafka-compatible cluster from this machine.",
    ),
    "inspect": Place(
        "inspect",
        "inspect",
        "Show and check files of a broker: segments, indexes, snapshots, checkpoints, metadata.",
    ),
    "log": Place(
        "log_verify",
        "log",
        "Verify and repair the files of a stopped broker.",
    ),
    "tutorial": Place(
        "tutorial",
        "tutorial",
        "Learn topics, records, keys and groups in five minutes, with a broker of its own.",
    ),
    "completion": Place(
        "completion",
        "completion",
        "Complete commands, options, topics, groups and keys of settings in bash, zsh or fish.",
    ),
    "simulate": Place(
        "simulate",
        "simulate",
        "Run a simulated broker under power cuts, kills and pauses, and check the history of its "
        "transactions.",
    ),
}
