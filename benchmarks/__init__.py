"""Benchmarks of sparklog: each module is a command, `python -m benchmarks.<name> [--json FILE]`; `make
bench` runs all.

Start with `harness.py`: measurements, the table, a broker of ours or a real Kafka as a child process.
`raw.py` holds the smallest possible client, so that it measures the broker. Nothing here imports
the broker; figures are of the machine they ran on.
"""
