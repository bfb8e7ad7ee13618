"""What every test run says about itself: which kernels serve, and what was skipped for want of a tool (the closing `-rs` lines)."""

from sparklog import kernels


def pytest_report_header() -> str:
    """Name the kernels once, at the top."""
    try:
        serving = kernels.implementation()
    except ImportError as error:
        return f"sparklog kernels: none ({error})"
    return f"sparklog kernels: {serving}" + (
        "" if serving == "compiled" else " (nothing was compiled: same answers, slower; see `make setup`)"
    )
