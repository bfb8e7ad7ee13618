"""Samples of Prometheus' text format, read as strictly as a scraper reads them."""

import re
import urllib.request
from typing import NamedTuple

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.e+-]+|NaN|\+Inf)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Scrape(NamedTuple):
    """Values by metric and labels, and the kinds of the families."""

    samples: dict[str, dict[frozenset[tuple[str, str]], float]]
    kinds: dict[str, str]

    def value(self, name: str, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        return self.samples[name][frozenset(labels.items())]

    def total(self, name: str) -> float:
        """The sum over the samples of a metric."""
        return sum(self.samples.get(name, {}).values())


def parsed(text: str) -> Scrape:
    """The samples of a text. Asserts that families are whole and no sample comes twice."""
    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    kinds: dict[str, str] = {}
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in kinds, f"{family} begins twice"
            kinds[family] = kind
            continue
        if line.startswith("# HELP ") or line == "# EOF":
            continue
        found = _SAMPLE.fullmatch(line)
        assert found is not None, line
        name, labels_text, value = found[1], found[2] or "", found[3]
        assert name == family or re.fullmatch(rf"{family}_(total|bucket|sum|count)", name), (
            f"{name} in {family}"
        )
        labels = frozenset(_labels(labels_text))
        assert labels not in samples.setdefault(name, {}), f"{line} comes twice"
        samples[name][labels] = float(value)
    return Scrape(samples, kinds)


def _labels(text: str) -> list[tuple[str, str]]:
    found, end = [], 0
    while end < len(text):
        label = _LABEL.match(text, end)
        assert label is not None, text[end:]
        value = re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], label[2])
        found.append((label[1], value))
        end = label.end()
    return found


def scrape(url: str, *, accept: str = "") -> Scrape:
    """Scrape a live node."""
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=20) as response:
        return parsed(response.read().decode())
