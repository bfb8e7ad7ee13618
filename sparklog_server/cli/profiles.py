"""Profiles: named client settings in `~/.config/sparklog/config.toml`, one of which is current.

    current = "test"

    [profiles.test]
    "bootstrap.servers" = "broker-1:9092"
    "security.protocol" = "SASL_SSL"

The file may have passwords: it is written with mode 0600, aside and renamed.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Final

from sparklog.errors import SettingsError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BYTES_MAX: Final = 1 << 20
_HEADER: Final = "# Written by `sparklog profile`, which keeps no comments.\n"


@dataclass(slots=True)
class Profiles:
    """The content of the file: settings by profile, with Kafka's names, and the name of the current one."""

    current: str | None = None
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)

    def settings_of(self, name: str) -> dict[str, str]:
        """The settings of a profile; SettingsError if there is none of that name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise SettingsError(
                f"there is no profile {name!r} in {config_path()}; there are: {known}. Create it by "
                f"`sparklog profile create {name}`"
            )
        return dict(self.by_name[name])


def config_path() -> Path:
    """The file of profiles, below XDG_CONFIG_HOME, which the XDG specification lets count only if it is
    absolute.
    """
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "sparklog" / "config.toml"


def checked_name(name: str) -> str:
    """The name, if it can be that of a profile."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"{name[:80]!r} is no name of a profile: use up to 64 letters, digits, dots, dashes, underscores"
        )
    return name


def read_profiles() -> Profiles:
    """The profiles of the file; none if there is no file. SettingsError if it cannot be read."""
    path = config_path()
    try:
        with path.open("rb") as stream:
            content = stream.read(_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _BYTES_MAX:
        raise SettingsError(f"{path} has more than {_BYTES_MAX} bytes, which is too much for profiles")
    return parsed_profiles(content, path)


def write_profiles(profiles: Profiles) -> Path:
    """Replace the file; its directory is made if there is none. Returns its path."""
    # A link, as those who keep their settings in a repository have it, stays one.
    path = config_path().resolve()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # with mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(written_profiles(profiles))
                stream.flush()
                os.fsync(descriptor)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink()
            raise
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
    return path


def parsed_profiles(content: bytes, path: Path) -> Profiles:
    """The profiles of a file's content; SettingsError names `path` and what is wrong."""
    import tomllib

    from sparklog_server.cli.client_files import flat_settings

    try:
        written = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    current, tables = written.get("current"), written.get("profiles", {})
    unknown = sorted(set(written) - {"current", "profiles"})
    if unknown:
        raise SettingsError(f"{path}: {unknown[0]!r} is neither `current` nor in a table [profiles.NAME]")
    if current is not None and not isinstance(current, str):
        raise SettingsError(f"{path}: current = {current!r} is no name of a profile")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{path}: profiles must be tables, [profiles.NAME]")
    return Profiles(
        current, {checked_name(name): dict(flat_settings(table)) for name, table in tables.items()}
    )


def written_profiles(profiles: Profiles) -> str:
    """The content of a file with these profiles."""
    parts = [_HEADER]
    if profiles.current is not None:
        parts.append(f"current = {_string(profiles.current)}\n")
    for name, settings in sorted(profiles.by_name.items()):
        parts.append(f"\n[profiles.{_string(name)}]\n")
        parts += [f"{_string(key)} = {_string(value)}\n" for key, value in sorted(settings.items())]
    return "".join(parts)


def _string(text: str) -> str:
    """A basic string of TOML: JSON's, but that DEL is escaped too."""
    return dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def with_absolute_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with the paths of files made absolute, because a profile is used in any directory."""
    return {
        name: str(Path(value).absolute()) if name.endswith((".location", ".file")) and value else value
        for name, value in settings.items()
    }
