"""How sources, readers and writers reach Spark processes on whose path this package is not, though it was
shipped with the session.

Spark puts what `--py-files` and `addArtifacts` ship on the path of its planners and of most executor
workers. In the process that plans a stream and in the one that commits its micro-batches it computes the
path wrong (a directory `streaming_job` that does not exist), and over Spark Connect in the workers of a
stream too (without the session's directory); 4.0 to 4.3. There, unpickling a class of this package fails
with ModuleNotFoundError. So the pickle carries where the package was found, and a function, by value, that
puts it on the path.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("msgspec", "crc32c", "cramjam", "lz4", "zstandard", "pyarrow")
"""What has to be installed where this package is used with Spark; compiled, so that none of it can be
imported from a zip file.
"""


def missing_packages(*more: str) -> list[str]:
    """Those of `PACKAGES` and `more` that this process cannot import."""
    return [name for name in (*more, *PACKAGES) if importlib.util.find_spec(name) is None]


class Portable:
    """Pickles so that it is unpickled also where this package is not on the path but among the files
    shipped with the session.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., object], tuple[object, ...]]:
        from pyspark import cloudpickle

        package = Path(__file__).absolute().parents[2]
        # Files shipped beside it are missing there as well.
        beside = [
            entry for entry in map(Path, sys.path) if entry != package and entry.parent == package.parent
        ]
        shipped = [str(entry) for entry in (package, *beside)]
        return _restored, (shipped, cloudpickle.dumps(super().__reduce_ex__(protocol)[:3]))  # type: ignore[no-untyped-call]


def _restored(shipped: list[str], pickled: bytes) -> object:
    """Runs where this package may not be importable: it uses the standard library alone, which it imports
    itself.
    """
    import importlib.util
    import pickle
    import sys
    from pathlib import Path

    if importlib.util.find_spec("sparklog") is None:
        for entry in map(Path, shipped):
            # On the driver's machine the file is where it was; an executor has it in its directory of files,
            # or in a session's within it.
            tails = (Path(entry.name), Path(entry.parent.name, entry.name))
            places = [entry, *(Path(base, tail) for base in sys.path for tail in tails)]
            sys.path.extend([str(place) for place in places if place.exists()][:1])
    try:
        make, arguments, state = pickle.loads(pickled)  # noqa: S301  (written by Spark's own planner)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} cannot be imported by {sys.executable}, which Spark uses here: install it on the "
            f"driver and on every executor,"
            " and set PYSPARK_PYTHON to the Python that has it"
        ) from error
    made = make(*arguments)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif state is not None:
        made.__dict__.update(state)
    return made


_restored.__module__ = (
    "__main__"  # cloudpickle pickles functions of `__main__` by value, and others by reference
)
