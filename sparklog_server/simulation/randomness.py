"""Randomness by name: each use has a sequence of its own, so a fault that is taken out of a run changes the
random numbers of no other part.
"""

from random import Random


def random_for(seed: int, purpose: str) -> Random:
    """The random sequence of one purpose, such as `disk 2`, in the run of `seed`.

    Text seeds a generator through SHA-512, which does not depend on PYTHONHASHSEED.
    """
    return Random(f"{seed} {purpose}")  # noqa: S311 - a reproducible seed needs no secure random numbers
