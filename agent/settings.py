"""The file of `agent run --config FILE`: console, agent, state folder, and folders that collectors may read."""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, FieldTable, ListOf, String

__all__ = ["DEFAULT_FOLDERS", "SETTINGS", "AgentSettings", "LocalSettings", "OutsideFolders", "ReadableFolders"]


DEFAULT_FOLDERS = (Path("/var/log"),)
URL = String(r"https?://\S+", "an address that begins with http:// or https://")
NAME = String(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", "lower-case letters, digits and dashes")
PATH = String()
URL_VARIABLE = "SLUICE_URL"  #: wins over the file: a console on the same host may change its port
SETTINGS = FieldTable(
    "the settings",
    Field("url", URL, help="address of the console"),
    Field("token", String(), help="enrolment token, used at the first start"),
    Field("token_file", PATH, help="a file with the enrolment token"),
    Field("name", NAME, help="what the console calls this agent; the host's name"),
    Field("state_dir", PATH, help="folder of its state; the folder of this file"),
    Field("ca_file", PATH, help="certificates to trust beside the system's, for https"),
    Field("read_from", ListOf(PATH), help="folders that collectors may read files from; /var/log"),
    Field("secret", String(), help="instead of a token: the secret of an agent that is enrolled"),
    Field("agent", String(), help="the id that belongs to the secret"),
    Field(
        "local",
        FieldTable(
            "local",
            Field("config", PATH, required=True, help="a configuration as JSON"),
            Field("frames", PATH, required=True, help="folder that frames are written to; - is standard output"),
        ),
        help="run without a console",
    ),
)


class OutsideFolders(Exception):
    """A file that collectors may not read, in words."""


class ReadableFolders:
    """Folders that collectors may read: files in `folders`, wherever links lead, and never those in `never`.

    `never` is the agent's own: its secret would make whoever edits sources the agent.
    """

    def __init__(self, folders: Sequence[Path] = DEFAULT_FOLDERS, never: Sequence[Path] = ()) -> None:
        self._folders = folders
        self._never = never

    def check(self, path: str | Path, real: str | None = None) -> None:
        """Whether the file, there or not, may be read.

        Raises
        ------
        Outside
            It may not.
        """
        real = real or os.path.realpath(path)
        if any(_is_in(real, own) for own in self._never):
            raise OutsideFolders(f"{path} is the agent's own, which no collector may read")
        if not any(_is_in(real, folder) for folder in self._folders):
            raise OutsideFolders(self.words(str(path)))

    def words(self, what: str) -> str:
        """That something is outside, and how the owner of the host changes that."""
        allowed = ", ".join(map(str, self._folders)) or "nothing"
        return f"{what} is outside of what agent.toml allows: read_from is {allowed}"

    def open(self, path: str | Path) -> int:
        """Descriptor of a file opened to be read.

        Raises
        ------
        Outside
            It may not be read.
        OSError
            It cannot be opened.
        """
        real = os.path.realpath(path)
        self.check(path, real)
        return os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)  # what became a link since is not followed


def _is_in(real: str, folder: Path) -> bool:
    return Path(real).is_relative_to(os.path.realpath(folder))


@dataclass(frozen=True)
class LocalSettings:
    """An agent without a console: its configuration and where its frames go (None: standard output)."""

    config: Path
    frames: Path | None


@dataclass(frozen=True)
class AgentSettings:
    """Content of the file; paths are absolute, relative ones begin at the file."""

    name: str
    state_dir: Path
    url: str = ""
    token: str = ""
    token_file: Path | None = None
    ca_file: str | None = None
    secret: str = ""
    agent: str = ""
    local: LocalSettings | None = None
    read_from: tuple[Path, ...] = DEFAULT_FOLDERS
    own: tuple[Path, ...] = ()  #: what no collector may read, wherever it lies

    @classmethod
    def load(cls, path: Path) -> AgentSettings:
        """Read the file.

        Raises
        ------
        DocumentError
            With every fault: the file cannot be read, is no TOML, or has wrong fields.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DocumentError([Fault("", f"{path}: {error.strerror}")], "configuration file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DocumentError([Fault("", f"{path} is no TOML: {error}")], "configuration file") from error
        settings = cls.parse(document, path.absolute().parent)
        return replace(settings, own=(*settings.own, path.absolute()))

    @classmethod
    def parse(cls, document: Any, folder: Path) -> AgentSettings:
        """Check the document of a file in `folder`."""
        faults: list[Fault] = []
        read = SETTINGS.read(document, "", "", faults)
        if not faults:
            _check_together(read, faults)
            _check_certificates(read, folder, faults)
        if faults or read is BAD:
            raise DocumentError(faults, "configuration file")
        local = read.get("local")
        state_dir = folder / read.get("state_dir", ".")
        token_file = folder / read["token_file"] if "token_file" in read else None
        return cls(
            name=read.get("name") or default_name(),
            state_dir=state_dir,
            url=(os.environ.get(URL_VARIABLE) or read.get("url", "")).rstrip("/"),
            token=read.get("token", ""),
            token_file=token_file,
            ca_file=str(folder / read["ca_file"]) if "ca_file" in read else None,
            secret=read.get("secret", ""),
            agent=read.get("agent", ""),
            local=_local(local, folder) if local else None,
            read_from=tuple(folder / path for path in read.get("read_from", DEFAULT_FOLDERS)),
            own=(state_dir, token_file) if token_file is not None else (state_dir,),
        )

    @property
    def readable(self) -> ReadableFolders:
        """Folders that collectors may read."""
        return ReadableFolders(self.read_from, self.own)


def _local(says: dict[str, str], folder: Path) -> LocalSettings:
    frames = None if says["frames"] == "-" else folder / says["frames"]
    return LocalSettings(folder / says["config"], frames)


def _check_together(read: dict[str, Any], faults: list[Fault]) -> None:
    if "local" in read:
        spare = [name for name in ("url", "token", "token_file", "secret", "agent") if name in read]
        faults.extend(Fault(name, f"{name} is given beside local; allowed: one of them") for name in spare)
    elif "url" not in read and not os.environ.get(URL_VARIABLE):
        faults.append(Fault("url", "url is missing; allowed: the console's address, or a section [local]"))
    if ("secret" in read) != ("agent" in read):
        missing, given = ("agent", "secret") if "secret" in read else ("secret", "agent")
        faults.append(Fault(missing, f"{missing} is missing; {given} needs it"))
    if "token" in read and "token_file" in read:
        faults.append(Fault("token_file", "token_file is given beside token; allowed: one of them"))


def _check_certificates(read: dict[str, Any], folder: Path, faults: list[Fault]) -> None:
    if "ca_file" not in read:
        return
    try:
        ssl.create_default_context().load_verify_locations(folder / read["ca_file"])
    except (OSError, ssl.SSLError) as error:
        message = f"ca_file is {read['ca_file']!r}: {error.strerror or error}; allowed: a file of certificates in PEM"
        faults.append(Fault("ca_file", message))


def default_name() -> str:
    """The host's name as the console takes names."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname().lower()).strip("-")
    return kept or "agent"


class FolderInUse(Exception):
    """Another process holds the folder."""


def lock_folder(folder: Path) -> int:
    """Be the only agent of this state folder; the lock goes with the process, however it ends.

    Raises
    ------
    InUse
        Another agent runs on it; the message has its process number.
    """
    descriptor = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise FolderInUse(f"state_dir is {str(folder)!r}: another agent (process {holder}) runs on it") from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
