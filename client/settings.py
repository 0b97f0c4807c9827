"""Server, token and certificates of a command: options first, then the environment, then the file of settings."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from client.errors import ClientError

__all__ = ["ClientSettings", "read_settings", "settings_path"]

_FIELDS = ("server", "token", "ca_file")
_DEFAULT_SERVER = "http://localhost:8000"


@dataclass(frozen=True)
class ClientSettings:
    """Where a command asks, and as whom. `token_from` names the token's place in messages."""

    server: str
    token: str
    token_from: str
    ca_file: str | None = None


def settings_path(environment: Mapping[str, str]) -> Path:
    """The file of settings: `SLUICE_CONFIG`, else `sluice/client.toml` in the folder of configurations."""
    if environment.get("SLUICE_CONFIG"):
        return Path(environment["SLUICE_CONFIG"]).expanduser()
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "sluice" / "client.toml"


def read_settings(
    environment: Mapping[str, str] = os.environ, *, server: str | None = None, ca_file: str | None = None
) -> ClientSettings:
    """Settings in force.

    Raises
    ------
    ClientError
        There is no token, the file of settings cannot be read or may be read by others, or the server is no address.
    """
    path = settings_path(environment)
    written = _read_file(path)
    token = environment.get("SLUICE_TOKEN") or written.get("token", "")
    token_from = "SLUICE_TOKEN" if environment.get("SLUICE_TOKEN") else str(path)
    if not token.strip():
        raise ClientError(
            "settings",
            f'There is no token: set SLUICE_TOKEN, or write token = "slu_…" into {path} (mode 600). '
            "The console makes tokens under Settings, Tokens.",
        )
    if not token.strip().isascii() or not token.strip().isprintable():
        raise ClientError("settings", f"The token of {token_from} is none: it has characters that no token has.")
    chosen = server or environment.get("SLUICE_SERVER") or written.get("server") or _DEFAULT_SERVER
    authority = ca_file or environment.get("SLUICE_CA_FILE") or written.get("ca_file")
    return ClientSettings(_address(chosen), token.strip(), token_from, authority)


def _read_file(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            written = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ClientError("settings", f"{path} cannot be read: {error}.") from None
    unknown = sorted(set(written) - set(_FIELDS))
    if unknown:
        raise ClientError("settings", f"{path}: {', '.join(unknown)} unknown; allowed: {', '.join(_FIELDS)}.")
    wrong = [name for name, value in written.items() if not isinstance(value, str)]
    if wrong:
        raise ClientError("settings", f"{path}: {', '.join(wrong)} must be text in quotes.")
    if "token" in written and mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"{path} holds a token and may be read by others (mode {stat.S_IMODE(mode):o}): chmod 600 {path}"
        raise ClientError("settings", message)
    return written


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ClientError("settings", f"The server is {text!r}; allowed: an address such as https://sluice.example.org")
    return text.rstrip("/")
