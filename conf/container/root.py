"""Lays out the root of the container: `python root.py SITE ROOT`.

It has this interpreter with its library, the packages of SITE, every shared library that those link, and the
certificate authorities of this system. Nothing else: no shell, no package manager.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
OMITTED = (
    *(
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "turtledemo",
        "ensurepip",
        "lib2to3",
        "site-packages",
        "dist-packages",
    ),
    *("config-*", "__pycache__", "_test*", "_tkinter*"),
)
"""Directories and modules of the library that a broker does not import."""


def lay_out(site: Path, root: Path) -> None:
    """Fill `root`, which must not exist."""
    interpreter, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, root / library.relative_to("/"), ignore=shutil.ignore_patterns(*OMITTED))
    shutil.copytree(site, root / "site", symlinks=True)
    _copy(interpreter, root)
    for binary in (interpreter, *root.rglob("*.so*")):
        for path in _libraries(binary):
            if not path.is_relative_to(root):  # those of a package are where the package is
                _copy(path, root)
    # The symbols of libpython take 20 MB in some builds; wheels are stripped by their authors, or patched.
    built_here = [
        root / interpreter.relative_to("/"),
        *root.rglob("libpython*"),
        *root.rglob("*_compiled.*.so"),
    ]
    subprocess.run(["strip", "--strip-unneeded", *map(str, built_here)], check=True)
    for directory in ("data", "tmp", "usr/bin"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").symlink_to(interpreter)
    (root / "etc").mkdir()
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    (root / "etc/passwd").write_text("sparklog:x:65532:65532::/data:/sbin/nologin\n")
    (root / "etc/ld.so.conf").write_text("/usr/local/lib\n")
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)
    if AUTHORITIES.exists():
        _copy(AUTHORITIES, root)


def _copy(path: Path, root: Path) -> None:
    copied = root / path.relative_to("/")
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path.resolve(), copied)


def _libraries(binary: Path) -> list[Path]:
    """The shared libraries that a binary links."""
    told = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)]


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]), Path(sys.argv[2]))
