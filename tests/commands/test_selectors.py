"""Selectors of extract: texts and siblings, XPath, JSONPath and whole tables; bounded on pages written against them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from test_rules import NoHand, cells

from crawler.commands.extract import harvest, json_page, rules, tables, tree
from crawler.commands.extract.harvest import ExtractedRow
from crawler.commands.extract.pool import Hand
from crawler.web.page import Unreadable

BOTH = pytest.mark.parametrize("parser", ["turbohtml", "html5lib"])


def rows(page: str, text: str) -> list[ExtractedRow]:
    """What rules give on a page."""
    given = rules.read(text, "x")
    found = json_page.read(page) if given.is_json else tree.read(page, given.parser)
    return list(harvest.rows_of(found, given, "http://a.example/b/c", cast(Hand, NoHand())))


def values(page: str, text: str) -> list[list[Any]]:
    """The values of these rows."""
    given = rules.read(text, "x")
    return [row.values(given) for row in rows(page, text)]


# ---- :contains

QUOTE = """<title>Q</title><table><tr><td>Open<td>1.5<tr><td>Pre<b>vious</b>
  close<td>2.5<tr><td>It's "it"<td>3.5</table><p>Open</p><i></i><script>var open = {"a": 1}</script>"""


@BOTH
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("td:contains('Open') + td", ["1.5"]),
        ("td:contains(Open) + td", ["1.5"]),
        ('td:contains("Previous close") + td', ["2.5"]),
        (":contains(Open):not(:has(*)):not(td)", ["Open"]),
        ("tr:not(:contains('close')) > td:nth-child(2)", ["1.5", "3.5"]),
        ("tr:has(td:contains(Previous)) td:last-child", ["2.5"]),
        (r"""td:contains('It\'s "it"') + td""", ["3.5"]),
        ("script:contains('var open')", ['var open = {"a": 1}']),
        ("td:contains('open')", None),
        ("i:contains('Open')", None),
        ("td:contains('1.5 Previous')", None),
        ("table:contains('1.5 Previous')", ['Open 1.5 Previous close 2.5 It\'s "it" 3.5']),
    ],
)
def test_an_element_is_found_by_its_text(parser: str, selector: str, found: Any) -> None:
    assert cells(QUOTE, selector, parser) == found


@BOTH
def test_a_text_that_overlaps_itself_is_found_in_each_element(parser: str) -> None:
    assert cells("<p><b>a</b><i>aa</i></p><p>ab</p>", "i:contains(aa)", parser) == ["aa"]
    assert cells("<p><b>a</b><i>aa</i></p><p>ab</p>", "p:contains(aaa)", parser) == ["aaa"]


def test_a_page_that_is_nested_deeply_takes_contains_one_pass() -> None:
    page = tree.read("<div>" * 400 + "needle " + "x" * 1_000_000, "turbohtml")
    page._left = 3_000_000  # one pass; the text of each element by itself would be 400 million characters
    selector = rules.read("columns: {a: 'div:contains(needle)'}", "x").columns[0].selector
    assert len(list(page.nodes(page.page, selector))) == 400


# ---- siblings of a row

LIST = """<table><tr class=name><td>One<tr class=more><td>a<td>b<tr class=name><td>Two<tr class=sum><td>c
<tr class=sum><td>d</table>"""


@BOTH
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("+ tr td", ["a", "c"]),
        ("+ tr > td:nth-child(2)", ["b", None]),
        ("+ .more", ["a b", None]),
        ("+ tr + tr td", ["Two", "d"]),
        ("~ tr.sum:not(:contains(c)) td", ["d", "d"]),
        ("~ .sum::attr(class)", ["sum", "sum"]),
        ("~ .none", [None, None]),
    ],
)
def test_a_column_may_be_in_what_follows_the_row(parser: str, selector: str, found: list[Any]) -> None:
    text = json.dumps({"parser": parser, "rows": "tr.name", "columns": {"x": selector, "name": "td"}})
    assert [row[0] for row in values(LIST, text)] == found


def test_siblings_of_very_many_rows_are_looked_for_in_bounded_work() -> None:
    page = "<table>" + "<tr class=a><td>x" * 20_000
    with pytest.raises(tree.TooMuch):
        values(page, "rows: tr\ncolumns: {a: '~ .none', b: td}")


# ---- XPath

GALLERY = """<base href="/pictures/"><center><img src=" a.png" alt="A
 a"><p>x <b>y</b> z</p><img src=b.png></center><img src=c.png><!-- note -->"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("//center/img/@src", ["a.png", "b.png"]),
        ("//center/img/@alt", ["A a"]),
        ("//p", ["x y z"]),
        ("//p/text()", ["x", "z"]),
        ("//b/..", ["x y z"]),
        ("//img[not(@alt)]/@src", ["b.png", "c.png"]),
        ("//*[contains(., 'y')][name() = 'p']", ["x y z"]),
        ("(//img)[last()]/@src", ["c.png"]),
        ("(count(//img))", ["3"]),
        ("(1 div 4)", ["0.25"]),
        ("(//b = 'y')", ["true"]),
        ("(concat(//b, '!'))", ["y!"]),
        ("//comment()", ["note"]),
        ("//nothing", None),
    ],
)
def test_xpath_finds_elements_attributes_and_values(path: str, found: Any) -> None:
    assert cells(GALLERY, path, "turbohtml") == found


def test_xpath_looks_from_the_row_and_links_are_absolute() -> None:
    text = """
        rows: //img
        columns:
          image: {selector: ./@src, type: url}
          inside: ./ancestor::center
          after: ./following-sibling::*[1]
          first: {selector: //b, from: page}
    """
    at = "http://a.example/pictures"
    assert values(GALLERY, text) == [
        [f"{at}/a.png", "x y z", "x y z", "y"],
        [f"{at}/b.png", "x y z", None, "y"],
        [f"{at}/c.png", None, None, "y"],
    ]


def test_an_xpath_that_fails_on_a_page_is_said_of_the_page() -> None:
    with pytest.raises(Unreadable, match="on which the XPath"):
        page = tree.read("<p>x", "turbohtml")
        page.texts(page.page, rules.selectors.Selector("//p[$x]", kind="XPath"), True)


# ---- JSONPath

API = json.dumps(
    {
        "data": {
            "total": 3,
            "list": [
                {"id": 1, "title": " a\nb ", "price": 1.5, "owner": {"name": "N"}, "tags": ["x", "y"], "open": True},
                {"id": 2, "title": "\u0000\ud800", "price": None, "tags": [], "open": False, "link": "../d?x=1"},
                {"id": 12345678901234567890, "title": {"en": "E"}},
            ],
        }
    }
)
OF_API = """
rows: $.data.list[*]
columns:
  id: {selector: $.id, type: int}
  title: $.title
  price: {selector: $.price, type: float}
  owner: $.owner.name
  tags: {selector: $.tags, type: list}
  open: {selector: $.open, type: bool}
  link: {selector: $.link, type: url}
  total: {selector: $.data.total, from: page, type: int}
"""


def test_jsonpath_finds_values_in_the_row_or_the_page() -> None:
    assert values(API, OF_API) == [
        [1, "a\nb", 1.5, "N", ["x", "y"], True, None, 3],
        [2, "\ufffd?", None, None, None, False, "http://a.example/d?x=1", 3],
        [None, '{"en": "E"}', None, None, None, False, None, 3],
    ]


def test_rows_may_be_values_and_a_page_without_rows_is_one() -> None:
    assert values('["[1]", 2, null]', "rows: $[*]\ncolumns: {x: $, y: '$[0]'}")[:2] == [["[1]", None], ["2", None]]
    assert values("\ufeff" + API, "columns: {x: {selector: '$..id', type: list}}") == [
        [["1", "2", "12345678901234567890"]]
    ]
    assert values(API, "columns: {x: '$.data.list[?@.price > 1].title'}") == [["a\nb"]]


@pytest.mark.parametrize(
    ("page", "path", "why"),
    [
        ("{half", "$.a", "with invalid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "$.a", "with invalid JSON"),
        ("[" + "1," * 1_000_001 + "1]", "$.a", "with more than 1,000,000 values"),
        ("[" * 300 + "]" * 300, "$..a", "nested too deeply"),
    ],
)
def test_a_page_that_is_no_use_as_json_is_named(page: str, path: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        values(page, f"columns: {{x: {path}}}")


def test_a_page_on_which_a_jsonpath_finds_endlessly_much_is_given_up() -> None:
    page = json_page.read("[" + "[1,1]," * 1000 + "1]")
    page._left = 4_000
    with pytest.raises(tree.TooMuch):
        page.texts(page.page, rules.selectors.read("$..*..*"), True)


# ---- whole tables

PRICES = """<table id=data><caption>C</caption><thead><tr><th rowspan=2>Day<th colspan=2>Price<th>
<tr><th>low<th>high<th></thead><tr><td>1 Nov<td>1<td>2<td><a href=x>more</a>
<tr><td rowspan=2>2 Nov<td>3<td>4<tr><td>5<td>6<td>y<td>z
<tr><td colspan=4> <tr><td>3 Nov<td colspan=2>closed<table><tr><td>inner</table></table><table><tr><td>other</table>"""


def table(page: str, text: str) -> list[dict[str, str]]:
    """The rows of a whole table, by its header."""
    return [row.more or {} for row in rows(page, text) if not row.skipped]


@BOTH
def test_the_header_of_a_table_names_its_columns(parser: str) -> None:
    assert table(PRICES, f"parser: {parser}\ntable: table#data") == [
        {"Day": "1 Nov", "Price low": "1", "Price high": "2", "column 4": "more"},
        {"Day": "2 Nov", "Price low": "3", "Price high": "4"},
        {"Day": "2 Nov", "Price low": "5", "Price high": "6", "column 4": "y", "column 5": "z"},
        {"Day": "3 Nov", "Price low": "closed inner", "Price high": "closed inner"},
    ]


@BOTH
@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("<table><tr><th>A<th>B<tr><td>1<td>2<tr><th>A<th>B<tr><td>3", [{"A": "1", "B": "2"}, {"A": "3"}]),
        ("<table><tr><td>A<td>B<tr><td>1<td>2", [{"A": "1", "B": "2"}]),
        ("<table><tr><th>A<th>a<th>url<tr><td>1<td>2<td>3", [{"A": "1", "a 2": "2"}]),
        ("<table><tr><th>A<th>B<tr><th>1<td>2", [{"A": "1", "B": "2"}]),
        ("<div><table><tr><th>A<tr><td>1</table></div>", [{"A": "1"}]),
        ("<table></table>", []),
        ("<div>no table</div>", []),
        ("<table><tr><th colspan=x>A<th rowspan=-1>B<tr><td colspan=99999>1", [{"A": "1", "B": "1"}]),
    ],
)
def test_a_table_has_a_header_as_sites_write_them(parser: str, page: str, found: list[dict[str, str]]) -> None:
    text = f"parser: {parser}\ntable: 'body > *'"
    assert [{name: row[name] for name in row if not name.startswith("column ")} for row in table(page, text)] == found


def test_beside_its_header_a_table_has_the_columns_of_the_rules() -> None:
    text = """
        table: '#data'
        columns:
          ticker: {from: url, regex: '/(\\w)$'}
          link: {selector: 'a::attr(href)', type: url}
          day: {selector: 'td', regex: '\\d+', type: int}
    """
    found = [(row.cells[0].value, row.cells[1].value, row.cells[2].value, row.more) for row in rows(PRICES, text)]
    assert found[0] == ("c", "http://a.example/b/x", 1, {"Price low": "1", "Price high": "2", "column 4": "more"})


def test_a_table_written_to_be_huge_is_truncated() -> None:
    page = tree.read("<table><tr><th>A" + f"<tr><td rowspan=60000 colspan=900>{'x' * 1000}" * 300, "turbohtml")
    with pytest.raises(tree.TooMuch):
        list(tables.rows(page, rules.selectors.read_rows("table"), ()))
