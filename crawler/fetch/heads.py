"""The head of a response, from the lines that a server sent."""

from __future__ import annotations


def final_head(lines: list[bytes]) -> tuple[int, list[bytes]]:
    """Return the status and the header lines of the response; a status of 0 if there are only interim ones."""
    status, start, end = _final(lines)
    return status, lines[start + 1 : end]


def raw_head(lines: list[bytes]) -> list[bytes]:
    """Return the status line and the header lines of the response, as they came."""
    _, start, end = _final(lines)
    return lines[start:end]


def _final(lines: list[bytes]) -> tuple[int, int, int]:
    """Return the status of the response, and where its head begins and ends."""
    start = 0
    for end, line in enumerate(lines):
        if line not in (b"\r\n", b"\n"):
            continue
        words = lines[start].split(None, 2) if end > start else []
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if status and (status >= 200 or status == 101):
            return status, start, end
        start = end + 1
    return 0, 0, 0


def pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    """Return the names and values of header lines; one that begins with a space goes on with the line before."""
    found: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        if name[:1] in " \t" and found:
            found[-1] = (found[-1][0], found[-1][1] + " " + line.decode("latin-1").strip())
        else:
            found.append((name, value))
    return found
