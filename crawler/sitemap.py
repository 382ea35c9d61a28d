"""stub"""

from typing import Any


def read(*a: Any) -> Any: ...
