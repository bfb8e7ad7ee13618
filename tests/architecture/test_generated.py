"""What is generated from the code is what the code says now, and no page points into the void."""

import ast
import subprocess
import sys

from docs import client_settings, limits
from docs.generate import PROJECT, broken_links, generated
from sparklog_server.config.settings import broker_keys
from sparklog_server.config.topic_settings import topic_keys
from tests.architecture.source_tree import modules, nodes_of


def test_generated_files_are_current() -> None:
    stale = [
        str(path.relative_to(PROJECT))
        for path, text in generated().items()
        if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "run `make docs`"


WITHOUT = (
    "pyarrow",
    "duckdb",
    "fastavro",
    "starlette",
    "uvicorn",
    "jmespath",
    "opentelemetry",
    "matplotlib",
    "pyspark",
)
"""Packages that the extra `docs` does not install, though others do."""


def test_the_pages_are_generated_by_what_the_extra_docs_installs() -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({WITHOUT}));"  # None: an import of it fails
        "from docs.generate import generated; assert generated()"
    )
    done = subprocess.run(
        (sys.executable, "-c", program), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_link_is_broken() -> None:
    assert broken_links() == []


def test_every_setting_that_bounds_something_is_on_the_page_of_limits() -> None:
    assert limits.undocumented() == []


def test_what_the_bounds_on_memory_allow_together_is_at_most_512_mib() -> None:
    assert limits.memory_bytes() <= 512 << 20


def test_every_setting_that_is_documented_as_effective_is_read() -> None:
    read = {
        node.attr
        for module in modules().values()
        for node in nodes_of(module)
        if isinstance(node, ast.Attribute)
    }
    keys = (*broker_keys().values(), *topic_keys().values())
    unread = [key.name for field, key in keys if key.has_effect and field.rpartition(".")[2] not in read]
    assert unread == []


def test_every_setting_of_the_client_is_described() -> None:
    assert client_settings.undocumented() == []
