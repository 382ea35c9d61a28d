"""What counts as a change of a page that a reader would notice."""

from __future__ import annotations

import pytest

from crawler.web.text_hash import visible_hash

PAGE = "<html><head><title>News</title></head><body><p>One</p><div>Two</div><footer>2026-11-17</footer></body></html>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<p>One</p>", "<p class=x data-nonce=12>One</p>"),
        ("<p>One</p>", "<p>One</p><!-- made at noon -->"),
        ("<p>One</p>", "<p>One</p><script nonce=abc>var x = 1</script><style>p {}</style>"),
        ("<p>One</p>", "<p>\n  One\n</p><input type=hidden value=token>"),
        ("<p>One</p>", "<p>One</p><template>x</template><noscript>y</noscript>"),
        ("2026-11-17", "2026-11-18"),
        ("<footer>2026-11-17</footer>", "<div id=footer>2026-11-18</div>"),
        ("<div>Two</div>", "<div>Two<!-- --></div><p>12:01:59</p>"),
    ],
)
def test_this_is_no_news(old: str, new: str) -> None:
    assert old in PAGE
    assert visible_hash(PAGE.replace(old, new)) == visible_hash(PAGE)


@pytest.mark.parametrize(
    ("old", "new"), [("One", "one"), ("Two", "Two 2026-11-18"), ("News", "Old news"), ("<p>One</p>", "")]
)
def test_this_is_news(old: str, new: str) -> None:
    assert visible_hash(PAGE.replace(old, new)) != visible_hash(PAGE)


def test_of_plain_text_all_counts_but_times() -> None:
    assert visible_hash("<p>a 10:00:00", False) == visible_hash("<p>a 10:00:01", False) != visible_hash("a", False)
