"""Builds the compiled kernels where a C compiler is at hand; without one the reference kernels serve
(sparklog.kernels tells which).
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildWhatCanBeBuilt(build_ext):
    """A kernel that does not compile is left out and named: its plain-Python twin gives the same answers."""

    def build_extension(self, ext: Extension) -> None:
        try:
            ext.optional = True  # lost on the way through cythonize
            super().build_extension(ext)
        except Exception as error:
            print(f"sparklog: {ext.name} is not built, its reference serves ({error})", file=sys.stderr)


def compiled_kernels() -> list[Extension]:
    """One extension per `*_compiled.pyx`; none with `SPARKLOG_PURE=1` or where Cython is
    missing.
    """
    if os.environ.get("SPARKLOG_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
            optional=True,
        )
        for source in sorted(Path("sparklog/kernels").glob("*_compiled.pyx"))
    ]
    return cythonize(extensions, build_dir="build/cython", language_level=3) if extensions else []


setup(ext_modules=compiled_kernels(), cmdclass={"build_ext": BuildWhatCanBeBuilt})
