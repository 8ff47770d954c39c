"""Who one end of a TLS connection says that it is: a certificate and its key, from files in PEM."""

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from router.causes import cause_of


def identify(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    """Take certificate and key.

    Raises:
        ValueError: they are none, or do not belong together.
    """
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_passphrase)
    except (OSError, ValueError) as error:
        is_mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
        raise ValueError(_words(cert_file, key_file, is_mismatch=is_mismatch)) from error


def readable(value: Path) -> Path:
    """The path of a file that can be read.

    Raises:
        ValueError: it cannot be.
    """
    try:
        value.read_bytes()
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {cause_of(error)}") from error
    return value


ReadableFile = Annotated[Path, AfterValidator(readable)]


def _no_passphrase() -> str:
    """Asked for where a key has one; without this OpenSSL would ask on the terminal."""
    return ""


def _words(cert_file: Path, key_file: Path, *, is_mismatch: bool) -> str:
    if is_mismatch:
        return f"key_file: {key_file} is not the key of {cert_file}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert_file)
    except ssl.SSLError:
        return f"cert_file: {cert_file} holds no certificate in PEM"
    return f"key_file: {key_file} holds no private key in PEM without a passphrase"
