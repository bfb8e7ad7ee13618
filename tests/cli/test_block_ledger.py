"""Every shell and Python block of our pages is executed by a test, or is named here with the reason why not.

A block that is not executed is checked all the same: each `sparklog` command parses, and Python compiles.
"""

import ast
import re
import shlex
from importlib import import_module
from itertools import takewhile
from typing import Final

import click
import pytest

from sparklog_server.cli.main import COMMANDS
from tests.documents import Block, blocks
from tests.tools import PROJECT

EXECUTED: Final = {
    "README.md": "tests/cli/test_documented_blocks.py and tests/spark/test_examples.py",
    "docs/command-line.md": "tests/cli/test_documented_blocks.py",
    "docs/python.md": "tests/cli/test_documented_blocks.py",
    "docs/start-python.md": "tests/cli/test_documented_blocks.py",
    "docs/start-operator.md": "tests/cli/test_documented_blocks.py",
    "docs/start-spark.md": "tests/spark/test_examples.py",
    "docs/operations.md": "tests/cli/test_operations_page.py",
    "docs/read.md": "tests/cli/test_read_page.py",
}
"""Pages of which a test executes every block, and the test."""

OTHER_MACHINES = "it addresses machines, users or directories of its reader"
FILES = "its output depends on files that tests/cli/test_inspect.py and test_log_repair.py damage on purpose"
FRAGMENT = "a part of a job, whose names are those of its reader's job"
NOT_EXECUTED: Final = {
    (
        "docs/cluster.md",
        "Several nodes on one machine",
    ): "tests/cli/test_cluster.py starts three nodes, without fixed ports",
    (
        "docs/cluster.md",
        "What happened to a node",
    ): "it shows a cluster in which a node is dead; tests/cli/test_cluster_status.py has the lines",
    ("docs/cluster.md", "Join a cluster"): "tests/cli/test_joining.py joins a node, without fixed ports",
    ("docs/cluster.md", "Move replicas"): "it needs three brokers; tests/cli/test_moving.py has the commands",
    ("docs/cluster.md", "Empty a node"): "it needs three brokers; tests/cli/test_moving.py has the commands",
    ("docs/cluster.md", "Several machines"): OTHER_MACHINES,
    ("docs/console.md", "The console"): "it addresses clusters of its reader; tests/console starts consoles",
    ("docs/exactly-once.md", "Exactly once from Spark"): FRAGMENT,
    ("docs/exactly-once.md", "Batches and foreachBatch"): FRAGMENT,
    (
        "docs/fault-tests.md",
        "Fault tests",
    ): "it needs a minute and namespaces; tests/live runs shorter attacks",
    (
        "docs/fault-tests.md",
        "Moves",
    ): "it takes minutes; tests/live/test_moving.py runs it in `make test-long`",
    ("docs/index.md", "sparklog"): "tests/packaging installs the tree in an environment of its own",
    ("docs/install.md", "On this machine"): "tests/packaging installs the tree in an environment of its own",
    ("docs/install.md", "On other machines"): "tests/packaging builds a wheel and installs it",
    (
        "docs/logs.md",
        "Levels",
    ): "it has Kafka's tool as well; tests/cli/test_broker_loggers.py has the commands",
    (
        "docs/migrating-from-kafka.md",
        "Without installing it",
    ): "it needs a cluster; tests/spark/test_shipping.py ships a zip file of this tree",
    ("docs/notebooks.md", "Without Databricks"): "tests/notebooks executes every notebook",
    ("docs/security.md", "Quick start"): OTHER_MACHINES,
    ("docs/security.md", "Several nodes"): OTHER_MACHINES,
    ("docs/security.md", "Certificates"): OTHER_MACHINES,
    ("docs/security.md", "In tests"): "tests/cli/test_pytest_plugin.py uses the fixture",
    ("docs/security.md", "A secure listener"): "tests/cli/test_security_page.py executes it on free ports",
    ("docs/security.md", "New certificates without a restart"): OTHER_MACHINES,
    ("docs/security.md", "PLAIN and SCRAM"): OTHER_MACHINES,
    ("docs/security.md", "Delegation tokens"): FRAGMENT,
    ("docs/security.md", "Clients"): FRAGMENT,
    ("docs/security.md", "Access"): OTHER_MACHINES,
    (
        "docs/service.md",
        "A broker as a service",
    ): "it changes the system; tests/daemon/test_service.py checks the unit",
    (
        "docs/service.md",
        "In a container",
    ): "it needs a container engine; tests/packaging runs the root of the container",
    ("docs/spark-traps.md", "A batch frame always reads the same offsets"): FRAGMENT,
    ("docs/spark-traps.md", "Workers run a different Python"): FRAGMENT,
    (
        "docs/spark-traps.md",
        "Every stream compiles PySpark when it starts",
    ): "it changes the installation of PySpark",
    ("docs/spark-traps.md", "Real-Time Mode needs the connector"): FRAGMENT,
    (
        "docs/telemetry.md",
        "Metrics of clients",
    ): "tests/compatibility has a client that pushes, on free ports",
    ("docs/telemetry.md", "Traces"): "it needs a collector on its port; tests/daemon has one on a free port",
    ("docs/tools.md", "`sparklog inspect FILE|DIR…`"): FILES,
    ("docs/tools.md", "`sparklog log verify DIR`"): FILES,
    ("docs/tools.md", "`sparklog log repair DIR`"): FILES,
    (
        "docs/tools.md",
        "`sparklog topics delete-records`",
    ): "tests/cli/test_delete_records.py has the commands",
}
"""Blocks below a heading that no test executes as they stand, and why."""

SHELL = ("", "sh", "console")
PROGRAMS = r"(sparklog|python|make|pip|git|podman|unshare|kafka-\w+|cd|useradd|curl|seq)\b"


def is_shell(block: Block) -> bool:
    """Whether the block has commands: a block without a language may be a log, a drawing or an expression."""
    return (
        block.language in SHELL and re.search(rf"^(\$ )?{PROGRAMS} \S", block.text, re.MULTILINE) is not None
    )


def pages() -> list[str]:
    found = sorted((PROJECT / "docs").rglob("*.md"))
    return ["README.md", *(page.relative_to(PROJECT).as_posix() for page in found)]


def runnable() -> list[tuple[str, Block]]:
    return [
        (page, block)
        for page in pages()
        for block in blocks(page)
        if block.language == "python" or is_shell(block)
    ]


def test_every_block_is_executed_or_named_with_a_reason() -> None:
    found = {(page, block.heading) for page, block in runnable() if page not in EXECUTED}
    assert found == set(NOT_EXECUTED)


@pytest.mark.parametrize("page", EXECUTED)
def test_the_test_that_executes_a_page_names_it(page: str) -> None:
    tests = re.findall(r"tests/\S+\.py", EXECUTED[page])
    assert all(f'"{page}"' in (PROJECT / test).read_text() for test in tests)


def test_the_tests_that_the_reasons_name_exist() -> None:
    named = {
        name for reason in NOT_EXECUTED.values() for name in re.findall(r"tests/[\w/]+(?:\.py)?", reason)
    }
    assert len(named) > 8
    assert [name for name in sorted(named) if not (PROJECT / name).exists()] == []


@pytest.mark.parametrize(
    ("page", "block"),
    [one for one in runnable() if one[1].language == "python"],
    ids=lambda value: value if isinstance(value, str) else value.heading,
)
def test_python_compiles(page: str, block: Block) -> None:
    del page
    ast.parse(block.text)


def commands() -> list[str]:
    """Each `sparklog` command of the blocks."""
    found = set()
    for _, block in runnable():
        if block.language != "python":
            text = block.text.replace("\\\n", " ")
            found.update(re.findall(r"^(?:\$ |seq \d+ \| )?(sparklog [a-z].*)$", text, re.MULTILINE))
    return sorted(found)


def words_of(line: str) -> list[str]:
    """The words of the command, without those that it is piped into and a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: word.strip("|>&"), lexer))


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words begin with, and the words that follow its name."""
    place = COMMANDS[words[0]]
    command: click.Command = getattr(import_module(f"sparklog_server.cli.{place.module}"), place.name)
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(click.Context(command), rest[0])
        assert below is not None, " ".join(words)
        command, rest = below, rest[1:]
    return command, rest


@pytest.mark.parametrize("line", commands())
def test_every_option_of_a_command_exists(line: str) -> None:
    words = words_of(line)[1:]
    command, rest = command_of(words)
    context = click.Context(command, info_name=words[0])
    command.make_parser(context).parse_args(rest)  # raises NoSuchOption


def mentioned() -> set[str]:
    """What stands between single quotes of code in the text of the pages, without line breaks."""
    texts = ((PROJECT / page).read_text() for page in pages())
    quoted = (span for text in texts for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text))
    return {re.sub(r"\s+", " ", span) for span in quoted}


def test_every_command_in_a_sentence_exists_with_its_options() -> None:
    named = sorted(span for span in mentioned() if re.match(r"sparklog [a-z][a-z-]*( |$)", span))
    assert len(named) > 100
    unknown = []
    for line in named:
        command, rest = command_of(words_of(line)[1:])
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        given = {word.partition("=")[0] for word in rest if word.startswith("--")}
        unknown += [f"{line}: {option}" for option in given - options]
    assert unknown == []


def test_every_target_of_make_in_a_sentence_exists() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    named = {found[1] for span in mentioned() if (found := re.match(r"make ([a-z][\w-]*)", span))}
    assert len(named) > 8
    assert named - targets == set()
