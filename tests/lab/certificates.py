"""Certificates good and bad, from an authority of our own, made with the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CONFIG = """
[ca]
default_ca = ours
[ours]
database = {folder}/index.txt
new_certs_dir = {folder}
default_md = sha256
policy = any
unique_subject = no
rand_serial = yes
[any]
commonName = supplied
"""
NOW = ("20200101000000Z", "20991231235959Z")


class Authority:
    """Issues certificates, each a file with its key; `trusted` is the file of who trusts it."""

    def __init__(self, folder: Path) -> None:
        if not shutil.which("openssl"):
            pytest.skip("the TLS tests make their certificates with the openssl program, which is not here")
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "index.txt").touch()
        (folder / "ca.conf").write_text(CONFIG.format(folder=folder))
        self.trusted = folder / "ca.pem"
        subject = ["-subj", f"/CN=authority {folder.name}", "-days", "3650", "-addext", "keyUsage=critical,keyCertSign"]
        self._run("req", "-x509", *self._key("ca"), "-out", "ca.pem", *subject)

    def issue(self, name: str, file: str, valid: tuple[str, str] = NOW, names: str | None = None) -> Path:
        """A certificate for a host name, valid between two times; `names` replaces its subjectAltName ("": none)."""
        self._run("req", "-new", *self._key(file), "-out", f"{file}.csr", "-subj", f"/CN={name}")
        named = f"subjectAltName={f'DNS:{name}' if names is None else names}\n" if names != "" else ""
        (self.folder / "names").write_text(f"{named}authorityKeyIdentifier=keyid\n")
        signed = ["-batch", "-notext", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key"]
        dates = ["-startdate", valid[0], "-enddate", valid[1], "-extfile", "names"]
        self._run("ca", *signed, "-in", f"{file}.csr", "-out", f"{file}.crt", *dates)
        return self._together(file)

    def sign_itself(self, name: str, file: str) -> Path:
        """A certificate that nobody but itself vouches for."""
        subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-days", "2"]
        self._run("req", "-x509", *self._key(file), "-out", f"{file}.crt", *subject)
        return self._together(file)

    def _together(self, file: str) -> Path:
        whole = self.folder / f"{file}.pem"
        whole.write_bytes((self.folder / f"{file}.crt").read_bytes() + (self.folder / f"{file}.key").read_bytes())
        return whole

    def _key(self, file: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{file}.key"]

    def _run(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self.folder, capture_output=True, check=True)
