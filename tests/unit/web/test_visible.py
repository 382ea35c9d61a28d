"""What a reader sees of a page."""

from __future__ import annotations

import pytest

from crawler.web.visible import visible


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>t</title><h1>A  b</h1><p>c <b>d</b>\n e</p>f", "A b\nc d e\nf"),
        ("<script>x</script><style>x</style><template>x</template>a<noscript>x</noscript>", "a"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a b\n1 2"),
        ("<ul><li>a<li>b</ul>c<br>d &amp; e", "a\nb\nc\nd & e"),
        ("wo<b>r</b>d", "word"),
        ("", ""),
        ("<div>" * 5000 + "deep", "deep"),
    ],
)
def test_the_text_has_a_line_for_each_block_and_no_markup(html: str, text: str) -> None:
    assert visible(html) == text
