"""sparklog as files that travel with a Spark session, and a Python on which it is not installed."""

import site
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.tools import PROJECT


def zipped(path: Path) -> Path:
    """A zip file of the package, without compiled files."""
    with zipfile.ZipFile(path, "w") as archive:
        for module in sorted((PROJECT / "sparklog").rglob("*.py")):
            archive.write(module, module.relative_to(PROJECT))
    return path


def python_without_sparklog(directory: Path) -> Path:
    """An environment that has the packages of this one, by their directory: an editable install is not
    among them.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    packages = directory.joinpath(*Path(sysconfig.get_path("purelib")).relative_to(sys.prefix).parts)
    packages.joinpath("packages.pth").write_text("\n".join(site.getsitepackages()))
    return directory / "bin" / "python"
