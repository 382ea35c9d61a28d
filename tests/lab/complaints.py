"""A site of complaints, as city halls have them: tables of them, a page for each, and what is around."""

from __future__ import annotations

HOST = "complaints.example"

# As manual/extract.md has them.
RULES = r"""match: '/list\?page=\d+'              # of all pages, those in whose URL this is found
rows: table.complaints tr             # a row for each of these; without it, a row for each page
columns:
  id:     {selector: 'td:nth-child(1)', regex: '#(\d+)', type: int, required: true}
  type:   td:nth-child(2)
  title:  .title a
  link:   {selector: '.title a::attr(href)', type: url}
  place:  td:nth-child(4)
  person: td:nth-child(5)
  time:   {selector: 'td:nth-child(6)', type: datetime, format: '%d.%m.%Y %H:%M'}
  tags:   {selector: .tag, type: list}
"""

HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>td {{ color: black }}</style></head><body><nav><a href="/list?page=1">1</a> <a href="/list?page=2">2</a></nav>
<h1>Complaints<br>of the city</h1>
"""

TABLE = """<table class="complaints" id="list">
<thead><tr><th>Id</th><th>Type</th><th>Title</th><th>Place</th><th>Person</th><th>Time</th><th>Cost</th><th></th></tr></thead>
<tbody>{rows}</tbody></table><p>Page {page} of 2</p></body></html>"""

ROWS = {
    1: """
<tr class="open" data-id="4711"><td>#4711</td>
  <td><img src="/noise.png" alt="noise"> Noise</td>
  <td class="title"><a href="/complaint/4711?utm_source=list">Dogs &amp; <b>ba</b>rking
      at night</a><script>track(4711)</script></td>
  <td>Mill Lane 3<br>Old Town</td><td>A.&nbsp;Smith</td><td>17.11.2026 09:30</td><td>1,250.50</td>
  <td><span class="tag">night</span> <span class="tag">dogs</span></td></tr>
<tr class="closed" data-id="4712"><td>#4712</td><td>Road</td>
  <td class="title"><a href="complaint/4712">Hole in the road, 中央通り</a><i class="done"></i></td>
  <td><p>Station</p><p>North side</p></td><td></td><td>16.11.2026 18:05</td><td>300</td><td></td></tr>
<tr><td colspan="8">Advertisement</td></tr>
""",
    2: """
<tr class="open" data-id="4713"><td>#4713</td><td>Light</td><td class="title"><a href="/complaint/4713">Lamp "7",
  broken</a></td><td>Harbour</td><td>B. Jones</td><td>yesterday</td><td>n/a</td>
  <td><span class="tag">dark</span></td></tr>
<tr class="note"><td>older ones</td><td>Light</td><td class="title">in the archive</td></tr>
""",
}
FACTS = '<!-- secret --><dl><dt>State<dd class="state">{state}</dl><template><b>never</b></template></body></html>'


def pages() -> dict[str, str]:
    """The whole site, by `host/path`; the first links to the rest."""
    found = {f"{HOST}/": '<!doctype html><title>Home</title><a href="/list?page=1">all complaints</a>'}
    for page, rows in ROWS.items():
        head = HEAD.format(title=f"List, page {page}")
        found[f"{HOST}/list?page={page}"] = head + TABLE.format(rows=rows, page=page)
    for number, state in ((4711, "open"), (4712, "closed"), (4713, "in doubt")):
        head = HEAD.format(title=f"Complaint {number}")
        found[f"{HOST}/complaint/{number}"] = head + FACTS.format(state=state)
    return found
