"""Reads YAML that a person, or whoever can write into the store, wrote (settings, rules, secrets), and writes YAML."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 50  # far more than any file of ours needs; the loader in C overflows the stack at some ten thousand
MAX_NODES = 1_000_000  # with what aliases repeat
IN_C = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, and less exact about the place of a mistake
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # three times as fast


def load(text: str, loader: Any = yaml.SafeLoader) -> Any:
    """Return what a document says; ValueError, in one line, for what is not YAML, too much, or has a key twice."""
    try:
        _check(text, loader)
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"{problem} in line {mark.line + 1}" if mark else str(problem)) from error
    except (AttributeError, LookupError) as error:  # PyYAML has no error of its own for these
        raise ValueError("a value does not fit its tag, as in `!!bool maybe`; omit the tag") from error


def dump(value: Any, **how: Any) -> str:
    """Return a value as YAML, each string on one line."""
    return str(yaml.dump(value, Dumper=DUMPER, width=1 << 20, **how))


class _Collection:
    """A list or mapping that is being read."""

    def __init__(self, event: yaml.CollectionStartEvent) -> None:
        self.anchor = event.anchor
        self.nodes = 1
        self._keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
        self._is_key = True  # whether a key is next

    def add(self, event: yaml.NodeEvent) -> None:
        """Note a key, a value or an item. YAML would silently take the last of two keys."""
        if self._keys is not None and self._is_key and isinstance(event, yaml.ScalarEvent):
            if event.value in self._keys:
                raise _wrong(f"duplicate key {event.value}", event, "; remove one")
            self._keys.add(event.value)
        self._is_key = not self._is_key


def _check(text: str, loader: Any) -> None:
    """Raise ValueError for a document that must not be built."""
    inside: list[_Collection] = []
    anchors: dict[str | None, int] = {}  # the nodes of each
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionEndEvent):
            ended = inside.pop()
            nodes = ended.nodes
            if ended.anchor:
                anchors[ended.anchor] = nodes
        elif isinstance(event, yaml.NodeEvent):
            if inside:
                inside[-1].add(event)
            if isinstance(event, yaml.CollectionStartEvent):
                anchors.pop(event.anchor, None)
                inside.append(_Collection(event))
                if len(inside) > MAX_DEPTH:
                    raise _wrong(f"more than {MAX_DEPTH} levels", event)
                continue
            nodes = anchors.get(event.anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
        else:
            continue
        if inside:
            inside[-1].nodes += nodes
            if inside[-1].nodes > MAX_NODES:
                raise _wrong(f"more than {MAX_NODES:,} values", event)


def _wrong(what: str, event: yaml.Event, hint: str = "") -> ValueError:
    assert event.start_mark
    return ValueError(f"{what} in line {event.start_mark.line + 1}{hint}")
