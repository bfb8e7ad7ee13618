"""`ssl.principal.mapping.rules`: random rules and subjects give the names that Kafka's own class gives."""

import random
import subprocess
from pathlib import Path

import pytest

from sparklog.errors import SettingsError
from sparklog_server.security.principals import NoRuleApplies, PrincipalRules
from tests.tools import KAFKA_JARS, require_kafka_tools

pytestmark = pytest.mark.compat

CASES = 20_000
TYPES = ("CN", "OU", "O", "L", "C", "DC", "1.2.3.4")
VALUES = (
    "App",
    "ops",
    "a b",
    "ü",
    r"x\,y",
    r"q\"z",
    "",
    "日本",
    "CN",
    "a/b",
    r"\ lead",
    "#12",
    "a\rb",
    "a\u2028b",
)
PIECES = (
    *(
        r"^CN=",
        r"CN=(.*?)",
        r"(.*?)",
        r".*",
        r"(\w+)",
        r"([^,]*)",
        r",OU=",
        r",OU=(.*?)",
        r",O=(.*?)$",
        r",.*$",
    ),
    *(
        r"$",
        r"^",
        r"(?i)cn=",
        r"\,",
        r"\\",
        r"(a|b)",
        r"[A-Z]+",
        r"(?:x)?",
        r"()",
        r"\/",
        r"p+",
        r"a{2}",
        r"\d",
    ),
    *(r"(?<n>p)", r"[^.]", r"\.", r"(?s).*", r"[.]+", r"\Q.\E"),
)
REPLACEMENTS = (
    *(
        "$1",
        "$2",
        "$1@$2",
        "$0",
        "$12",
        "$10",
        "$9",
        "user",
        "",
        r"\$1",
        r"a\/b",
        "$1-$3",
        "ü",
        "$",
        "$x",
        "$01",
    ),
    *(r"\\", r"\\$1", "{$1}", "${n}", "${m}"),
)
SEPARATORS = (",", ", ", " ,", ",,", " , ")
WHOLE = (
    *(
        "DEFAULT",
        "",
        " ",
        "default",
        "RULE:",
        "RULE:a/b",
        "RULE:a//",
        "RULE:/a/",
        "RULE:a/b/X",
        "RULE:a/b/LU",
    ),
    *("RULE:(/b/", "DEFAULT x", "RULE:a/b/ L", "DEFAULT,", ",DEFAULT", "RULE:.*/x/L,DEFAULT"),
)


def a_subject(chance: random.Random) -> str:
    names = [f"{chance.choice(TYPES)}={chance.choice(VALUES)}" for _ in range(chance.randint(1, 4))]
    return ",".join(names) if chance.random() > 0.05 else ""


def some_rules(chance: random.Random) -> str:
    if chance.random() < 0.1:
        return chance.choice(WHOLE)
    rules = [a_rule(chance) for _ in range(chance.randint(1, 3))]
    text = rules[0]
    for rule in rules[1:]:
        text += chance.choice(SEPARATORS) + rule
    return text


def a_rule(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return "DEFAULT"
    pattern = "".join(chance.sample(PIECES, chance.randint(1, 4)))
    return f"RULE:{pattern}/{chance.choice(REPLACEMENTS)}/{chance.choice(('', '', 'L', 'U'))}"


def ours(rules: str, subject: str) -> str:
    try:
        return "=" + PrincipalRules(rules).apply(subject).encode().hex()
    except SettingsError:
        return "invalid"
    except NoRuleApplies:
        return "none"


def test_random_rules_give_kafkas_names(tmp_path: Path) -> None:
    require_kafka_tools()
    chance = random.Random(19)
    cases = [(some_rules(chance), a_subject(chance)) for _ in range(CASES)]
    given = tmp_path / "cases"
    given.write_text("".join(f"{rules.encode().hex()} {dn.encode().hex()}\n" for rules, dn in cases))
    program = Path(__file__).with_name("MappedNames.java")
    run = subprocess.run(
        ["java", "-cp", f"{KAFKA_JARS}/*", str(program), str(given)],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    theirs = run.stdout.splitlines()
    assert len(theirs) == CASES
    different = [
        f"{rules!r} {subject!r}: Kafka {kafkas}, ours {own}"
        for (rules, subject), kafkas in zip(cases, theirs, strict=True)
        if (own := ours(rules, subject)) != kafkas
    ]
    assert different == []
    assert sum(answer.startswith("=") for answer in theirs) > CASES // 5
