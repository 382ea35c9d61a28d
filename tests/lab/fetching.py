"""One request outside any crawl."""

from __future__ import annotations

from typing import Any

from crawler.fetch.fetcher import Fetcher
from crawler.fetch.request import FetchOptions
from crawler.web import urls
from crawler.web.page import Failure, Fetched


def get(url: str, **options: Any) -> Fetched | Failure:
    """Send one request; takes the fields of FetchOptions by name."""
    fetcher = Fetcher(FetchOptions(**options))
    try:
        return fetcher.get(urls.normalize(url) or url)
    finally:
        fetcher.close()
