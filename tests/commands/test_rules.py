"""RULES.yaml: what a selector gives, what a text becomes, and one sentence for every mistake."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest

from crawler.commands.extract import harvest, rules, tree
from crawler.commands.extract.pool import Hand
from crawler.errors import UsageError

# ---- what a selector gives


class NoHand:
    """The hand of a test, which nobody watches."""

    def take(self, key: str, url: str) -> None: ...

    def at(self, number: int) -> None: ...

    def drop(self) -> None: ...


def cells(html: str, selector: str, parser: str, kind: str = "list") -> Any:
    """What a selector gives on a page, read by one of the parsers."""
    column = json.dumps({"selector": selector, "type": kind})
    given = rules.read(f"{{parser: {parser}, columns: {{x: {column}}}}}", "x")
    (row,) = harvest.rows_of(tree.read(html, parser), given, "http://a.example/", cast(Hand, NoHand()))
    return row.cells[0].value


PAGE = """<!doctype html><title>T</title><div id=o class="a B"><table><caption>C</caption><tr data-N=1><td>#1
<td class=t lang=en-US><a href="/a" title=" x
 y ">A <b>bo</b>ld</a><br>two<p>x</p><script>var a</script><style>s</style><template><i>never</i></template><!-- c -->
<td><table><tr><td>inner</table><tr><td>#2<td>sec<wbr>ond<input checked disabled value=""></table>
<svg viewBox="0 0"><a href=q>sv</a><title>drawn</title></svg><select><option selected>o1<option>o2</select><textarea>
 t </textarea><noscript><em>ns</em></noscript><p>&#xD800;&#0;a&nbsp;&#12288;b&shy;c</p>
<p></p><ul><li>1<li>2<li>3</ul></div>"""

SELECTORS = """
td  td:nth-child(2)  td:nth-of-type(1)  td:first-child  td:last-child  td:only-child  td:not(.t)  td:has(> a)  *
td:is(.t, .u)  td:where(.t)  a[href^='/']  a[href$=q]  a[href*="a"]  td, a  a,td  p:empty  :root  TD  [data-n]
td:nth-child(2 of .t)  td:has(a)  input:checked  [class~=B]  .b  .B  #o  td[lang|=en]  div[class='A B' i]  td a:any-link
td:nth-last-child(1)  html td  td + td  td ~ td  li:nth-child(odd)  li:nth-child(2n+1)  :not(td)  td a:not(:has(b))
[href]:not([href=''])  svg a  title  head title  body > div > table > tbody > tr > td  :scope > body  table table td
noscript em  option  textarea  select  p  script  style  template i  caption  td::text  a::attr(href)  a::attr(title)
input::attr(checked)  input::attr(value)  ::attr(lang)  div::attr(class)  tr::attr(data-n)  tr::attr(DATA-N)
svg::attr(viewBox)  td::attr(nothing)  nothing::text  ::text  li:nth-last-of-type(2)  li:first-of-type  input:disabled
ul:has(li:nth-child(3)) li"""


@pytest.mark.parametrize("selector", re.split(r"  |\n", SELECTORS.strip()))
def test_both_parsers_understand_a_selector_alike(selector: str) -> None:
    assert cells(PAGE, selector, "turbohtml") == cells(PAGE, selector, "html5lib")


@pytest.mark.parametrize("parser", ["turbohtml", "html5lib"])
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("td:nth-child(2)", ["A bold two x", "second"]),
        ("td.t::text", ["A bold two x"]),
        ("tr:first-child > td", ["#1", "A bold two x", "inner", "inner"]),
        ("a::attr(href)", ["/a", "q"]),
        ("a::attr(title)", ["x\n y"]),
        ("script", ["var a"]),
        ("template i", None),
        ("p", ["x", "\ufffd\ufffda b\xadc"]),
        ("ul", ["1 2 3"]),
        ("select", ["o1 o2"]),
    ],
)
def test_the_text_of_an_element_is_all_that_is_in_it_on_one_line(parser: str, selector: str, found: Any) -> None:
    assert cells(PAGE, selector, parser) == found


def test_a_link_is_relative_to_what_the_page_says() -> None:
    assert cells("<base href='/b/'><a href='c'>x</a>", "a::attr(href)", "turbohtml", "url") == "http://a.example/b/c"
    assert cells("<base href='http://['><a href='c'>x</a>", "a::attr(href)", "html5lib", "url") == "http://a.example/c"


# ---- what a text becomes


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("int", "42", 42),
        ("int", "-7", -7),
        ("int", "9223372036854775807", 2**63 - 1),
        ("int", "9223372036854775808", None),
        ("int", "9" * 5000, None),
        ("int", "1_000", None),
        ("int", "4.0", None),
        ("float", "4.5e3", 4500.0),
        ("float", ".5", 0.5),
        ("float", "nan", None),
        ("float", "1e999", None),
        ("float", "1,5", None),
        ("bool", "No", False),
        ("bool", "ON", True),
        ("bool", "", True),
        ("bool", "perhaps", None),
        ("date", "2026-11-17", "2026-11-17"),
        ("datetime", "2026-11-17T09:30:00+01:00", "2026-11-17T09:30:00+01:00"),
        ("date", "soon", None),
        ("url", "../b?x=1#y", "http://a.example/b?x=1"),
        ("url", "mailto:me@a.example", None),
        ("text", "as it is", "as it is"),
    ],
)
def test_a_text_that_is_not_of_its_type_is_no_value(kind: str, given: str, value: Any) -> None:
    (column,) = rules.read(f"columns: {{x: {{selector: p, type: {kind}}}}}", "x").columns
    try:
        assert column.convert(given, "http://a.example/c/d") == value
    except ValueError:
        assert value is None


# ---- rules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["lines of `name: value`", "columns"]),
        ("- a\n- b", ["lines of `name: value`"]),
        ("rows: tr", ["`columns` is missing or empty"]),
        ("columns: {}", ["`columns` is missing or empty"]),
        ("columns: [a]", ["columns must be lines", "title: h1"]),
        ("column: {a: b}", ["unknown key 'column'", "did you mean 'columns'?"]),
        ("columns: {a: b}\nxyz: 1", ["unknown key 'xyz'", "known keys are hosts, match"]),
        ("columns:\n  a: b\n  c: d\n  a: e", ["duplicate key a", "line 4"]),
        ("columns: {a: b", ["not valid YAML", "line 1"]),
        ('columns: {a: {selector: b, regex: "\\d"}}', ["not valid YAML", "line 1", "single quotes"]),
        ("columns: {url: b}", ["columns: url exists in every output", "another name"]),
        ("columns: {Id: b, id: c}", ["columns: id differs from Id only in case"]),
        ("columns: {yes: b}", ["columns: the name True is not text", "quotes"]),
        ("columns: {a: }", ["columns: a is None", "write a selector"]),
        ("columns: {a: [b]}", ["columns: a is ['b']", "write a selector"]),
        ("columns: {a: {}}", ["columns: a has no selector", "from: url"]),
        ("columns: {a: {from: url, selector: b}}", ["columns: a must not have a selector"]),
        ("columns: {a: {from: there, selector: b}}", ["columns: a: from is 'there'", "row, page, url"]),
        ("columns: {a: {selector: b, tpye: int}}", ["columns: a: unknown key 'tpye'", "'type'"]),
        ("columns: {a: {selector: b, type: integer}}", ["columns: a: type is 'integer'", "text, int, float"]),
        ("columns: {a: {selector: b, regex: '('}}", ["columns: a: regex is '('", "regular expression"]),
        ("columns: {a: {selector: b, regex: 'a{99999999999}'}}", ["columns: a: regex", "regular expression"]),
        ("columns: {a: {selector: b, regex: 7}}", ["columns: a: regex is 7", "text"]),
        ("columns: {a: {selector: b, replace: x}}", ["columns: a: replace is 'x'", "'regex': 'new text'"]),
        ("columns: {a: {selector: b, replace: {x: '\\1'}}}", ["columns: a: replace", "cannot replace 'x'"]),
        ("columns: {a: {selector: b, replace: {x: 1}}}", ["columns: a: replace", "new text"]),
        ("columns: {a: {selector: b, format: '%d'}}", ["columns: a: format works only with the types date and"]),
        ("columns: {a: {selector: b, type: date, format: '%Q'}}", ["columns: a: format is '%Q'", "%d.%m.%Y"]),
        ("columns: {a: {selector: b, required: maybe}}", ["columns: a: required is 'maybe'", "true or false"]),
        ("columns: {a: {selector: b, required: true, default: x}}", ["columns: a is required and has a default"]),
        ("columns: {a: {selector: b, type: int, default: x}}", ["columns: a: default is 'x'", "type int"]),
        ("columns: {a: {selector: b, type: int, default: true}}", ["columns: a: default is True", "type int"]),
        ("columns: {a: {selector: b, type: float, default: .nan}}", ["columns: a: default is nan", "type float"]),
        ("columns: {a: {selector: b, type: list, default: x}}", ["columns: a: default is 'x'", "type list"]),
        ('columns: {a: {selector: b, default: "\\ud800"}}', ["columns: a: default", "must be text"]),
        ("columns: {a: 'td:eq(1)'}", ["columns: a: selector is 'td:eq(1)'", "unknown pseudo-class at position 5"]),
        ("columns: {a: 'td:contains()'}", ["columns: a: selector", "td:contains('Total')"]),
        ("columns: {a: '+ td, p'}", ["columns: a: selector", "no comma"]),
        ("columns: {a: {selector: '+ td', from: page}}", ["columns: a", "remove `from: page`"]),
        ("rows: '+ tr'\ncolumns: {a: b}", ["rows is '+ tr'", "only a column's selector"]),
        ("columns: {a: '//td['}", ["columns: a: selector is '//td['", "must be an XPath ("]),
        ("columns: {a: './/td[foo(1)]'}", ["columns: a: selector", "unknown function 'foo'"]),
        ("rows: //td\ncolumns: {a: '//b'}", ["columns: a: //b begins at the page", "write .//b", "from: page"]),
        ("rows: //img/@src\ncolumns: {a: .}", ["rows is '//img/@src'", "must lead to elements"]),
        ("parser: html5lib\ncolumns: {a: //b}", ["XPath works only with `parser: turbohtml`"]),
        ("columns: {a: '$.x['}", ["columns: a: selector is '$.x['", "must be a JSONPath ("]),
        ("columns: {a: $.x, b: h1}", ["mixes JSONPath with selectors for HTML"]),
        ("table: $.x", ["mixes JSONPath with selectors for HTML"]),
        ("rows: tr\ntable: table", ["both `rows` and `table`"]),
        ("table: 'table['", ["table is 'table['", "CSS selector"]),
        ("url: maybe\ncolumns: {a: b}", ["url is 'maybe'", "true or false"]),
        ("columns: {a: '> td'}", ["columns: a: selector", "CSS selector"]),
        ("columns: {a: 'td ::text'}", ["columns: a: selector", "remove the space before ::text"]),
        ("columns: {a: 'td::txt'}", ["columns: a: selector", "only ::text and ::attr(NAME)"]),
        ("columns: {a: 'td::attr()'}", ["columns: a: selector", "only ::text and ::attr(NAME)"]),
        ("columns: {a: 'td::text, p::text'}", ["columns: a: selector", "::attr(NAME) are supported, at the end"]),
        ("columns: {a: 'svg|a'}", ["columns: a: selector", "namespaces"]),
        ("columns: {a: ''}", ["columns: a: selector is ''", "one line of text"]),
        ("rows: tr::text\ncolumns: {a: b}", ["rows is 'tr::text'", "at the end of a column's selector"]),
        ("rows: '['\ncolumns: {a: b}", ["rows is '['", "CSS selector"]),
        ("match: '['\ncolumns: {a: b}", ["match is '['", "regular expression"]),
        ("hosts: [1]\ncolumns: {a: b}", ["hosts is [1]", "one line of"]),
        ("parser: lxml\ncolumns: {a: b}", ["parser is 'lxml'", "turbohtml, html5lib"]),
    ],
)
def test_a_mistake_in_the_rules_is_one_sentence_that_names_the_place(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as told:
        rules.read(text, "my.yaml")
    said = str(told.value)
    assert said.startswith("my.yaml")
    assert "\n" not in said
    assert [word for word in words if word not in said] == []


def test_more_columns_than_a_table_can_have_are_refused() -> None:
    with pytest.raises(UsageError, match="501 columns"):
        rules.read("columns:\n" + "".join(f"  c{number}: p\n" for number in range(501)), "x")
