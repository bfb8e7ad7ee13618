"""Fuzzing of every decoder of foreign bytes: framing, headers, and every message in every version, in both
kernels.

    python -m tests.wire.fuzz --seconds 60 --seed 7
    python -m tests.wire.fuzz                           another seed each time, until interrupted

Starts from the corpus (`fuzz_corpus/`) and from arbitrary messages, mutates them and checks that decoding
returns or raises the one decode error, that both kernels agree, that a decoded message can be written again,
and, for a sample, the memory it allocates. A finding is printed as a case for the corpus, and the exit code
is 1.
"""

import argparse
import gc
import math
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from sparklog.errors import DecodeError
from sparklog.wire import schema
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.frame import Framer
from sparklog.wire.header import UnsupportedVersion, decode_request_header
from sparklog.wire.schema import Message
from tests.wire.arbitrary import arbitrary, every_version, kernels
from tests.wire.hostile import mutations

CORPUS = Path(__file__).parent / "fuzz_corpus"
ALLOCATION_FACTOR = 64
ALLOCATION_BASE = 16384
"""What decoding may take for a frame of no bytes at all."""
MEASURED_EVERY = 97
ALLOWED_S = 1.0
"""Far more than any frame of the fuzzer needs; a decode that takes longer is not linear."""


@dataclass(frozen=True, slots=True)
class Case:
    """One message's bytes, and for the corpus the expected result: `decoded` or `refused: <reason>`."""

    cls: type[Message]
    version: int
    octets: bytes
    answer: str = ""

    def __str__(self) -> str:
        kind = "request" if self.cls.__name__.endswith("Request") else "response"
        name = self.cls.__name__.removesuffix("Request").removesuffix("Response")
        return f"{name} {kind} {self.version}\n{self.answer}\n----\n{self.octets.hex(' ')}\n"


class Finding(Exception):
    """A violated property, with the case that violates it."""

    def __init__(self, what: str, case: Case) -> None:
        super().__init__(f"{what}\n{case}")


def corpus() -> dict[str, Case]:
    """The cases on file, by name: comment lines, `Api request|response version`, the answer, `----`, and
    bytes in hexadecimal.
    """
    return {path.stem: read_case(path.read_text()) for path in sorted(CORPUS.glob("*.txt"))}


def read_case(text: str) -> Case:
    head, _, octets = text.partition("----\n")
    what, answer = [line for line in head.splitlines() if not line.startswith("#")]
    name, kind, version = what.split()
    api = next(api for api in API_BY_KEY.values() if api.name == name)
    return Case(
        api.request() if kind == "request" else api.reply(), int(version), bytes.fromhex(octets), answer
    )


def outcome(call: Callable[..., Any], *arguments: object) -> tuple[str, Any]:
    """`decoded` and the message, or `refused` and the kernel's reason and position; anything else that is
    raised is a finding.
    """
    try:
        return "decoded", call(*arguments)
    except ValueError as error:
        return "refused", error.args


class Fuzzer:
    """Runs cases through every kernel that is there; counts the results."""

    def __init__(self) -> None:
        self.kernels = kernels()
        self.counts: Counter[str] = Counter()
        self._programs: dict[tuple[type[Message], int], list[Any]] = {}

    def programs(self, cls: type[Message], version: int) -> list[Any]:
        if (cls, version) not in self._programs:
            is_flexible = version >= cls.versions.flexible
            made = [
                schema.flatten(cls, version, is_flexible=is_flexible, kernel=kernel)
                for kernel in self.kernels
            ]
            self._programs[cls, version] = made
        return self._programs[cls, version]

    def run(self, case: Case) -> str:
        """The result of the case; raises Finding."""
        programs = self.programs(case.cls, case.version)
        # Of this thread, and without collecting what others left behind: only the decoding is to be judged.
        gc.disable()
        started = time.thread_time()
        try:
            outcomes = [
                outcome(kernel.decode, made, case.octets)
                for kernel, made in zip(self.kernels, programs, strict=True)
            ]
        except Exception as error:
            raise Finding(f"decoding raised {error!r}", case) from error
        finally:
            gc.enable()
        if time.thread_time() - started > ALLOWED_S:
            raise Finding("decoding took too long", case)
        self.check_alike(outcomes, programs, case)
        self.counts[outcomes[0][0]] += 1
        return outcomes[0][0] if outcomes[0][0] == "decoded" else f"refused: {outcomes[0][1][0]}"

    def check_alike(self, outcomes: list[tuple[str, Any]], programs: list[Any], case: Case) -> None:
        if len({kind for kind, _ in outcomes}) != 1:
            raise Finding(f"the kernels differ: {outcomes}", case)
        if outcomes[0][0] == "refused":
            if len({args for _, args in outcomes}) != 1:
                raise Finding(f"the kernels refuse differently: {outcomes}", case)
            return
        # Compared as they are written: NaN is not equal to itself.
        written = [
            b"".join(kernel.encode(made, message))
            for kernel, made, (_, message) in zip(self.kernels, programs, outcomes, strict=True)
        ]
        if len(set(written)) != 1:
            raise Finding("the kernels decode differently", case)
        again = self.kernels[-1].decode(programs[-1], written[0])
        if b"".join(self.kernels[-1].encode(programs[-1], again)) != written[0]:
            raise Finding("what was decoded does not come back", case)

    def check_allocation(self, case: Case) -> None:
        """Raises Finding for a case that takes more memory than decoding may."""
        for kernel, made in zip(self.kernels, self.programs(case.cls, case.version), strict=True):
            peak = allocated(lambda kernel=kernel, made=made: outcome(kernel.decode, made, case.octets))  # type: ignore[misc]
            if peak > ALLOCATION_FACTOR * len(case.octets) + ALLOCATION_BASE:
                raise Finding(f"{kernel.__name__} allocated {peak} bytes for {len(case.octets)}", case)


def allocated(call: Callable[[], object]) -> int:
    """The peak of memory that a call takes, in bytes."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def cases(random: Random) -> Iterator[Case]:
    """Bent cases without end: each message in each version, and the corpus, over and over."""
    every, kept = list(every_version()), list(corpus().values())
    while True:
        for cls, version in random.sample(every, len(every)):
            octets = b"".join(bytes(chunk) for chunk in schema_encode(cls, version, random))
            yield from (Case(cls, version, bent) for bent in mutations(octets, random, count=4))
            case = random.choice(kept)
            yield from (
                Case(case.cls, case.version, bent) for bent in mutations(case.octets[:4096], random, count=1)
            )


def schema_encode(cls: type[Message], version: int, random: Random) -> list[Any]:
    kernel = kernels()[-1]
    made = schema.flatten(cls, version, is_flexible=version >= cls.versions.flexible, kernel=kernel)
    chunks: list[Any] = kernel.encode(made, arbitrary(cls, version, random))
    return chunks


def check_stream(octets: bytes, random: Random) -> None:
    """Bytes as they come from a socket: framing and headers answer, or raise one of the two errors that
    belong to them.
    """
    framer, shared = Framer(frame_bytes_max=4096), memoryview(octets)
    while shared:
        buffer = framer.buffer()
        size = min(len(buffer), len(shared), random.randint(1, 600))
        buffer[:size], shared = shared[:size], shared[size:]
        try:
            for frame in framer.received(size):
                decode_request_header(frame)
        except UnsupportedVersion:
            continue
        except DecodeError:
            return


def fuzz(seconds: float, seed: int) -> Counter[str]:
    """Runs until the time is over or ^C; raises Finding. The same seed goes through the same cases."""
    random, fuzzer, until = Random(seed), Fuzzer(), time.monotonic() + seconds
    for case in corpus().values():
        fuzzer.run(case)
    with suppress(KeyboardInterrupt):
        for number, case in enumerate(cases(random)):
            fuzzer.run(case)
            if number % MEASURED_EVERY == 0:
                fuzzer.check_allocation(case)
                check_stream(case.octets + len(case.octets).to_bytes(4, "big") + case.octets, random)
                if time.monotonic() > until:
                    break
    return fuzzer.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(
        f"seed {options.seed}: fuzzing, ^C ends it"
        if options.seconds == math.inf
        else f"seed {options.seed}: fuzzing",
        flush=True,
    )
    try:
        counts = fuzz(options.seconds, options.seed)
    except Finding as finding:
        print(f"seed {options.seed}: {finding}")
        return 1
    print(f"seed {options.seed}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
