"""The page on operations: its commands run; alerts and figures are those of the rules and of selftest."""

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import free_port
from sparklog_server.cli.main import COMMANDS
from sparklog_server.cli.selftest import REFERENCE
from tests.cli.conftest import PROGRAM
from tests.documents import blocks
from tests.tools import PROJECT

PAGE = "docs/operations.md"
ADDRESS = "127.0.0.1:9092"
AT_THE_END = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"


def alerts() -> dict[str, str]:
    """Each alert of the rules and its runbook."""
    text = (PROJECT / "conf" / "alerts.yml").read_text()
    found = re.findall(r'- alert: (\w+)\n(?:(?!- alert).*\n)*? +runbook_url: "(.*)"', text)
    assert len(found) == text.count("- alert: ")
    return dict(found)


def test_each_alert_has_a_section_and_links_to_it() -> None:
    page = (PROJECT / PAGE).read_text()
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == list(alerts())
    assert alerts() == {name: f"{PAGE}#{name.lower()}" for name in headings}
    for name in headings:
        section = page.partition(f"\n### {name}\n")[2].partition("\n#")[0]
        assert len(section.strip().split("\n\n")) == 2, f"{name}: what it means, and what to do"


def test_the_reference_machine_is_that_of_selftest() -> None:
    page = (PROJECT / PAGE).read_text()
    rows = re.findall(
        r"^\| (?:disk|loopback|CRC32C|one producer|acks=all).*\| ([\d.]+) [^|]+\|$", page, re.MULTILINE
    )
    assert [float(value) for value in rows] == list(REFERENCE)


def test_every_command_of_the_page_exists() -> None:
    page = (PROJECT / PAGE).read_text()
    assert {name for name in re.findall(r"sparklog ([a-z][a-z-]+)", page) if name not in COMMANDS} == set()


def test_the_blocks_run_one_after_another(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sparklog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    script = "\n".join(block.text for block in blocks(PAGE) if block.language == "sh")
    assert script.count("sparklog start") == 2
    address = f"127.0.0.1:{free_port()}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", f"{AT_THE_END}\n{script.replace(ADDRESS, address)}"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARKLOG_BOOTSTRAP_SERVER": address,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    log = (tmp_path / "node.log").read_text()
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log}"
    assert log.count(" stopped ") == 2
    assert "CRITICAL" not in done.stdout
