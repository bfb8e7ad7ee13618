"""Entropy for tests: bytes that differ from call to call and not from run to run."""


class CountingEntropy:
    """The number of the call."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, size: int) -> bytes:
        self._calls += 1
        return self._calls.to_bytes(size, "big")
