"""`sparklog completion`: the scripts by which shells complete commands, options, names and keys."""

import os
import shlex
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from sparklog_server.cli.printing import report

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SPARKLOG_COMPLETE"
_ADDED = "COMPREPLY+=($value)"


@click.group()
def completion() -> None:
    """Complete commands, options, topics, groups and keys of settings in bash, zsh or fish."""


@completion.command()
@click.argument("shell", type=click.Choice(SHELLS))
def show(shell: str) -> None:
    """Print the script for a shell."""
    click.echo(_script(shell))


@completion.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def install(shell: str | None) -> None:
    """Install the script for SHELL, by default for that of the variable SHELL.

    bash and fish load it from their own directories, bash by the package bash-completion; for zsh a line in
    ~/.zshrc loads it.
    """
    wanted = shell or Path(os.environ.get("SHELL", "")).name
    if wanted not in SHELLS:
        raise click.UsageError(f"the shell {wanted!r} has no completion: name one of {', '.join(SHELLS)}")
    path = _path_of(wanted)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_script(wanted) + "\n", encoding="utf-8")
    report(f"installed {path}; it takes effect in new shells")
    if wanted == "zsh":
        _load_in_zsh(path)


def _path_of(shell: str) -> Path:
    data = _directory("XDG_DATA_HOME", ".local/share")
    if shell == "fish":
        return _directory("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "sparklog.fish"
    if shell == "zsh":
        return data / "sparklog" / "completion.zsh"
    given = os.environ.get("BASH_COMPLETION_USER_DIR")
    return (Path(given.split(":")[0]) if given else data / "bash-completion") / "completions" / "sparklog"


def _directory(variable: str, default: str) -> Path:
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default


def _load_in_zsh(script: Path) -> None:
    """Add the line that loads the script to ~/.zshrc, once."""
    settings = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    text = settings.read_text(encoding="utf-8", errors="surrogateescape") if settings.exists() else ""
    line = f"source {shlex.quote(str(script))}  # sparklog completion"
    if line in text.splitlines():
        return
    with settings.open("a", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(("\n" if text and not text.endswith("\n") else "") + line + "\n")
    report(f"added to {settings}: {line}")


def _script(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root()
    script = kind(root.command, {}, "sparklog", _VARIABLE).source()
    # The value of a key follows without a space.
    return script.replace(_ADDED, f"{_ADDED}\n            [[ $value == *= ]] && compopt -o nospace")
