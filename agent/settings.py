"""The file of `agent run --config FILE`: console, agent, state folder, and folders that collectors may read."""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from engine.errors import DocumentError, Fault
from engine.kinds import String
from engine.records import Record, Words

__all__ = ["AgentSettings", "OutsideFolders", "ReadableFolders", "SettingsFile"]


DEFAULT_FOLDERS = (Path("/var/log"),)
_Text = Annotated[str, String()]
_Url = Annotated[str, String(r"https?://\S+", "an address that begins with http:// or https://")]
_Name = Annotated[str, String(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", "lower-case letters, digits and dashes")]
URL_VARIABLE = "SLUICE_URL"  #: wins over the file: a console on the same host may change its port


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
class LocalFile(Record):
    """Section `local` of the file: an agent without a console."""

    TITLE: ClassVar[str] = "local"

    config: Annotated[_Text, Words("a configuration as JSON")]
    frames: Annotated[_Text, Words("folder that frames are written to; - is standard output")]


@dataclass(frozen=True)
class SettingsFile(Record):
    """The file as it stands; its relative paths begin at its folder."""

    TITLE: ClassVar[str] = "the settings"

    url: Annotated[_Url | None, Words("address of the console")] = None
    token: Annotated[_Text | None, Words("enrolment token, used at the first start")] = None
    token_file: Annotated[_Text | None, Words("a file with the enrolment token")] = None
    name: Annotated[_Name | None, Words("what the console calls this agent; the host's name")] = None
    state_dir: Annotated[_Text, Words("folder of its state; the folder of this file")] = "."
    ca_file: Annotated[_Text | None, Words("certificates to trust beside the system's, for https")] = None
    read_from: Annotated[tuple[_Text, ...] | None, Words("folders that collectors may read files from; /var/log")] = (
        None
    )
    secret: Annotated[_Text | None, Words("instead of a token: the secret of an agent that is enrolled")] = None
    agent: Annotated[_Text | None, Words("the id that belongs to the secret")] = None
    local: Annotated[LocalFile | None, Words("run without a console")] = None

    def find_faults(self) -> Iterator[Fault]:
        """Fields that exclude each other, and those that need another."""
        if self.local is not None:
            for name in ("url", "token", "token_file", "secret", "agent"):
                if getattr(self, name) is not None:
                    yield Fault(name, f"{name} is given beside local; allowed: one of them")
        elif self.url is None and not os.environ.get(URL_VARIABLE):
            yield Fault("url", "url is missing; allowed: the console's address, or a section [local]")
        if (self.secret is None) != (self.agent is None):
            missing, given = ("agent", "secret") if self.agent is None else ("secret", "agent")
            yield Fault(missing, f"{missing} is missing; {given} needs it")
        if self.token is not None and self.token_file is not None:
            yield Fault("token_file", "token_file is given beside token; allowed: one of them")


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
        file = SettingsFile.read(document, "", "", faults)
        if file is not None and file.ca_file is not None:
            faults += _certificate_faults(file.ca_file, folder)
        if faults or file is None:
            raise DocumentError(faults, "configuration file")
        state_dir = folder / file.state_dir
        token_file = folder / file.token_file if file.token_file is not None else None
        read_from = DEFAULT_FOLDERS if file.read_from is None else file.read_from
        return cls(
            name=file.name or default_name(),
            state_dir=state_dir,
            url=(os.environ.get(URL_VARIABLE) or file.url or "").rstrip("/"),
            token=file.token or "",
            token_file=token_file,
            ca_file=str(folder / file.ca_file) if file.ca_file is not None else None,
            secret=file.secret or "",
            agent=file.agent or "",
            local=_local(file.local, folder) if file.local is not None else None,
            read_from=tuple(folder / path for path in read_from),
            own=(state_dir, token_file) if token_file is not None else (state_dir,),
        )

    @property
    def readable(self) -> ReadableFolders:
        """Folders that collectors may read."""
        return ReadableFolders(self.read_from, self.own)


def _local(file: LocalFile, folder: Path) -> LocalSettings:
    frames = None if file.frames == "-" else folder / file.frames
    return LocalSettings(folder / file.config, frames)


def _certificate_faults(ca_file: str, folder: Path) -> Iterator[Fault]:
    try:
        ssl.create_default_context().load_verify_locations(folder / ca_file)
    except (OSError, ssl.SSLError) as error:
        message = f"ca_file is {ca_file!r}: {error.strerror or error}; allowed: a file of certificates in PEM"
        yield Fault("ca_file", message)


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
