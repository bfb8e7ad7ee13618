"""Resident memory of a process, as Linux counts it."""

from pathlib import Path


def resident_mib(pid: int) -> float:
    """Resident memory now."""
    return _status_mib(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """The greatest resident memory since `reset_peak`."""
    return _status_mib(pid, "VmHWM")


def reset_peak(pid: int) -> None:
    """Start a new peak at the resident memory of now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status has no {name}")
