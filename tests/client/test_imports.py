"""The modules that public names load: a fast command line imports only the modules it uses."""

import subprocess
import sys

import pytest

import sparklog

HEAVY = {
    "asyncio",
    "ssl",
    "concurrent.futures",
    "logging",
    "pyarrow",
    "pyspark",
    "sparklog_server",
    "sparklog.record",
    "zstandard",
    "lz4",
}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_sparklog_loads_nothing_but_itself() -> None:
    loaded = loaded_by("import sparklog")
    assert {name for name in loaded if name.startswith("sparklog")} == {"sparklog"}
    assert loaded & {"msgspec", "typing", "socket", *HEAVY} == set()


def test_administration_loads_neither_records_nor_codecs_nor_an_event_loop() -> None:
    assert loaded_by("from sparklog import Admin") & HEAVY == set()


@pytest.mark.parametrize("name", [name for name in sparklog.__all__ if name not in ("register",)])
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sparklog, name) is not None
    assert name in dir(sparklog)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sparklog.nothing  # type: ignore[attr-defined]
