"""A copy of the files that a release is built from."""

import shutil
from pathlib import Path

import pytest

from tests.tools import PROJECT

PARTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "Makefile")
PACKAGES = ("sparklog", "sparklog_server", "pyspark_sparklog")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that a release is built from, without what was built from them here."""
    copied = tmp_path / "tree"
    copied.mkdir()
    for name in PARTS:
        shutil.copy2(PROJECT / name, copied)
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
        shutil.copytree(PROJECT / name, copied / name, ignore=ignored)
    return copied
