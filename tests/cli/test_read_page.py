"""The blocks of the page on `sparklog.read` run in order, and print what they show."""

import shlex
from typing import Any

import pytest

from sparklog_server.cli.main import main
from tests.documents import blocks, commands
from tests.serializers.schema_registry import running


def test_every_block_of_the_page_on_reading_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    with running() as registry:
        for block in blocks("docs/read.md"):
            if block.language == "python":
                exec(
                    compile(block.text.replace("http://127.0.0.1:8081", registry.url), "read.md", "exec"),
                    names,
                )
                printed = capsys.readouterr().out
            elif block.language == "":
                assert printed.splitlines() == block.text.splitlines()
            else:
                monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", names["servers"])
                for line, shown in commands(block):
                    assert main(shlex.split(line)[1:]) == 0
                    assert capsys.readouterr().out.splitlines() == shown
