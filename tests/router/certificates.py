"""Certificates made on the spot."""

import shutil
import subprocess
from pathlib import Path

from tests import needs


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate that signs itself, for localhost and 127.0.0.1, and its key; both named so."""
    if shutil.which("openssl") is None:
        needs.lacking("needs the command openssl")
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
