"""Resident memory of the broker, and the latency of one honest client, under each attack of this package.

The broker has the shipped settings. Memory is read before the attack, at its peak and 30 s after; the
honest client produces and fetches 1 KB, 200 times a second each. `--attack NAME` (repeatable) chooses
attacks, `--seconds N` says how long each lasts.
"""

import argparse
import multiprocessing
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

from benchmarks import harness
from benchmarks.attack import honest, memory
from benchmarks.attack.target import Target, load_attacks, run_attack

PARTITIONS = 20
REST_S = 30.0
ATTACK_TIMEOUT_S = 300.0
RESIDENT_MIB_MAX = 512
KEPT_MIB_MAX = 64
P99_MS_MAX = 20
LONGEST_MS_MAX = 250

_context = multiprocessing.get_context("spawn")


def main() -> None:
    options = _options()
    figures = harness.Figures("attack")
    for name in options.attack or load_attacks():
        for _ in range(options.repeats):
            with harness.sparklog() as subject:
                measure(figures, subject, name, options)
    figures.note(
        f"shipped settings; honest client: produce and fetch of {honest.VALUE_BYTES} B, "
        f"{honest.RATE_PER_S}/s each, acks=1"
    )
    figures.report(options)


def measure(
    figures: harness.Figures, subject: harness.Subject, name: str, options: argparse.Namespace
) -> None:
    """One attack on a broker of its own."""
    pid = subject.process.pid
    harness.create_topic(subject, "honest")
    harness.create_topic(subject, "attacked", partitions=PARTITIONS)
    with honest.running(subject.host, subject.port, "honest") as client:
        begun = _context.Event()
        target = Target(subject.host, subject.port, pid, "attacked", PARTITIONS, options.seconds, begun)
        attacker = _context.Process(target=run_attack, args=(name, target), daemon=True)
        attacker.start()
        while not begun.wait(1):
            _check_alive(name, attacker)
        before_mib = memory.resident_mib(pid)
        memory.reset_peak(pid)
        began_s = time.monotonic()
        attacker.join(ATTACK_TIMEOUT_S)
        _check_ended(name, attacker)
        time.sleep(honest.WARM_UP_S)  # the broker may still work on the last requests
        ended_s = time.monotonic()
        peak_mib = memory.peak_mib(pid)
        time.sleep(options.rest)
        after_mib = memory.resident_mib(pid)
        answers = client.stop()
    during = [answer.latency_ms for answer in answers if began_s <= answer.sent_s <= ended_s]
    add = figures.add
    add(f"{name}: resident before", "MiB", "sparklog", before_mib)
    add(f"{name}: resident at its peak", "MiB", "sparklog", peak_mib, bound=f"<= {RESIDENT_MIB_MAX}")
    add(
        f"{name}: more after {options.rest:.0f} s",
        "MiB",
        "sparklog",
        after_mib - before_mib,
        bound=f"<= {KEPT_MIB_MAX}",
    )
    add(f"{name}: honest p50", "ms", "sparklog", harness.percentile(during, 50))
    add(f"{name}: honest p99", "ms", "sparklog", harness.percentile(during, 99), bound=f"<= {P99_MS_MAX}")
    add(f"{name}: honest longest", "ms", "sparklog", max(during), bound=f"<= {LONGEST_MS_MAX}")


def _check_alive(name: str, attacker: SpawnProcess) -> None:
    if not attacker.is_alive():
        raise RuntimeError(f"{name} ended before it began, with exit code {attacker.exitcode}")


def _check_ended(name: str, attacker: SpawnProcess) -> None:
    if attacker.is_alive():
        attacker.kill()
        raise RuntimeError(f"{name} did not end within {ATTACK_TIMEOUT_S:.0f} s")
    if attacker.exitcode:
        raise RuntimeError(f"{name} failed with exit code {attacker.exitcode}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="measure N times and take the median (default 1)"
    )
    parser.add_argument(
        "--attack", action="append", choices=load_attacks(), help="measure this attack only (repeatable)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts (default 10)")
    parser.add_argument(
        "--rest",
        type=float,
        default=REST_S,
        help=f"seconds before memory is read again (default {REST_S:.0f})",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
