"""JSON as a tree, and in colours."""

import pytest

from sparklog_server.console.rendering import DEPTH_MAX, coloured, tree
from tests.console.browser import Page


def test_each_kind_of_value_has_its_colour() -> None:
    assert coloured('{"a": [1.5e3, true, null, "b,\\" <c>"]}') == (
        '{<span class="j-key">&#34;a&#34;</span>: [<span class="j-number">1.5e3</span>, '
        '<span class="j-word">true</span>, <span class="j-word">null</span>, '
        '<span class="j-string">&#34;b,\\&#34; &lt;c&gt;&#34;</span>]}'
    )


def test_objects_and_lists_fold_and_empty_ones_do_not() -> None:
    html = tree('{"a": {"b": []}, "c": [1, 2], "d": {}}')
    assert html.count("<details open>") == html.count("</details>") == 3
    assert Page(html).text.replace(" ", "") == '{"a":{"b":[]},"c":[1,2],"d":{}}'


@pytest.mark.parametrize(
    "text", ['{"a": [1, 2', '{"a": "b', "plain", "[1] [", "]", "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)]
)
def test_what_is_cut_or_too_deep_stays_as_it_stands(text: str) -> None:
    html = tree(text)
    assert "<details" not in html
    assert Page(html).text.replace(" ", "") == text.replace(" ", "")


def test_text_that_is_like_an_element_stays_text() -> None:
    for view in (tree, coloured):
        assert Page(view('{"<b0ld>": "</span><script>&quot;&#34;"}')).active == []
