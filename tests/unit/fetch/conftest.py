"""For the tests of requests: what each fetcher made in them loads first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True, scope="session")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust the first of certifi's authorities alone: to load all takes longer than most of these tests."""
    file = tmp_path_factory.mktemp("trusted") / "first.pem"
    file.write_text(Path(certifi.where()).read_text("utf-8").partition(END)[0] + END)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SSL_CERT_FILE", str(file))
        yield
