"""Profiles: the file, which one applies, and what is shown of it."""

import stat
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import SettingsError
from sparklog_server.cli.main import main, sparklog
from sparklog_server.cli.options import client_map, reaches_cluster
from sparklog_server.cli.profiles import (
    Profiles,
    config_path,
    parsed_profiles,
    read_profiles,
    written_profiles,
)

TOLD: list[dict[str, str]] = []


@click.command()
@reaches_cluster
def tell_settings() -> None:
    TOLD.append(client_map())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("SPARKLOG_PROFILE", "SPARKLOG_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def settings(*arguments: str) -> dict[str, str]:
    """The client settings of a command with these arguments."""
    tell_settings.main(list(arguments), standalone_mode=False)
    return TOLD.pop()


def server(*arguments: str) -> str:
    return settings(*arguments)["bootstrap.servers"]


def test_profiles_are_created_selected_and_shown(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["profile", "create", "test", "-b", "one:1", "-X", "sasl.password=secret-1"]) == 0
    assert main(["profile", "create", "live", "-b", "two:2"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"created profile {name} in {home}/sparklog/config.toml; it is the current profile"
        for name in ("test", "live")
    ]
    assert main(["profile", "use", "test"]) == 0
    assert main(["profile", "list"]) == 0
    assert capsys.readouterr().out == "\tlive\ttwo:2\n*\ttest\tone:1\n"
    assert main(["profile", "show"]) == 0
    assert capsys.readouterr().out == "bootstrap.servers\tone:1\nsasl.password\t(hidden)\n"
    assert server() == "one:1"


def test_the_file_is_for_its_owner_alone_and_whole(home: Path) -> None:
    config_path().parent.mkdir()
    config_path().write_text('[profiles.old]\n"bootstrap.servers" = "old:1"\n')
    config_path().chmod(0o644)
    assert main(["profile", "create", "new", "-b", "new:1"]) == 0
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
    assert set(read_profiles().by_name) == {"old", "new"}
    assert [path.name for path in config_path().parent.iterdir()] == ["config.toml"]


def test_a_link_to_the_file_stays_a_link(home: Path) -> None:
    kept = home / "kept.toml"
    kept.write_text("")
    config_path().parent.mkdir()
    config_path().symlink_to(kept)
    assert main(["profile", "create", "test", "-b", "one:1"]) == 0
    assert config_path().is_symlink()
    assert "one:1" in kept.read_text()


def test_a_profile_is_made_from_a_file_of_a_client(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    Path("client.toml").write_text(
        'bootstrap_servers = "kafka:9093"\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
        'sasl_username = "u"\nsasl_password = "hush"\nssl_truststore_location = "ca.pem"\n'
        'ssl_truststore_type = "PEM"\n'
    )
    assert main(["profile", "create", "live", "--from", "client.toml", "-X", "client.id=me"]) == 0
    found = settings("--profile", "live")
    assert found["bootstrap.servers"] == "kafka:9093"
    assert found["ssl.truststore.location"] == str(home / "ca.pem")
    assert (found["client.id"], found["sasl.password"]) == ("me", "hush")
    assert main(["profile", "show", "live", "--json"]) == 0
    shown = capsys.readouterr()
    assert "hush" not in shown.out + shown.err


def test_which_settings_apply(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert server() == "127.0.0.1:9092"
    for name in ("one", "two"):
        main(["profile", "create", name, "-b", f"{name}:1", "-X", "sasl.password=p"])
    file = home / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    assert server() == "two:1"
    assert server("--profile", "one") == "one:1"
    # The credentials of the current profile go to no cluster that was named otherwise.
    for named in (("-b", "other:1"), ("--command-config", str(file)), ("-X", "bootstrap.servers=x:1")):
        assert "sasl.password" not in settings(*named)
    assert settings("--profile", "one", "-b", "other:1") == {
        "bootstrap.servers": "other:1",
        "sasl.password": "p",
    }
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", "variable:1")
    assert settings() == {"bootstrap.servers": "variable:1"}
    monkeypatch.setenv("SPARKLOG_PROFILE", "one")
    assert server() == "one:1"
    assert server("--command-config", str(file)) == "file:1"


def test_the_variables_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sparklog.main(["topics", "list", "--help"])
    told = capsys.readouterr().out
    assert "SPARKLOG_PROFILE" in told
    assert "SPARKLOG_BOOTSTRAP_SERVER" in told


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["use", "absent"], 2, "there is no profile 'absent'"),
        (["show"], 1, "no profile is current"),
        (["create", "a/b", "-b", "x:1"], 2, "'a/b' is no name of a profile"),
        (["create", "a"], 2, "a profile needs settings"),
        (["create", "a", "-X", "lingr.ms=1"], 2, "lingr.ms"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *arguments]) == code
    assert told in capsys.readouterr().err
    assert not config_path().exists()


def test_a_profile_is_replaced_only_when_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profile", "create", "a", "-b", "x:1"])
    assert main(["profile", "create", "a", "-b", "y:1"]) == 1
    assert "--replace replaces it" in capsys.readouterr().err
    assert main(["profile", "create", "a", "-b", "y:1", "--replace"]) == 0
    assert server() == "y:1"


@pytest.mark.parametrize(
    "content",
    [
        b"current = 1",
        b"profiles = 3",
        b"profiles.a = 3",
        b"[profile.a]",
        b"[profiles.'a b']",
        b"\xff",
        b"[",
        b"#" * (1 << 21),
    ],
)
def test_a_file_that_is_no_profiles_is_told_with_its_path(content: bytes) -> None:
    config_path().parent.mkdir()
    config_path().write_bytes(content)
    with pytest.raises(SettingsError, match=r"config\.toml|no name of a profile"):
        read_profiles()


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), st.text(max_size=20)), st.booleans()
)
def test_what_is_written_is_read_again(values: dict[str, str], is_current: bool) -> None:
    profiles = Profiles("p" if is_current else None, {"p": values, "q.r-s": {}})
    assert parsed_profiles(written_profiles(profiles).encode(), config_path()) == profiles
