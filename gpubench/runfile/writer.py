"""Write files: values as JSON can hold them, files that are complete or absent, locks, and texts that may be
published."""

from __future__ import annotations

import getpass
import glob
import itertools
import json
import math
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ..errors import RunFileError, Unwritten, UsageError

_COMMON = frozenset({"root", "localhost", "user", "admin", "runner"})  # names of many machines, which identify no one
_PLACE = re.compile(
    r"(?P<url>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+)"
    r"|(?<=['\"])(?:~|[A-Za-z]:)?(?:[/\\][^/\\'\"\n]+)+[/\\](?P<quoted>[^/\\'\"\n]+)(?=['\"])"  # with spaces
    r"|(?:(?<![\w.])|(?<=[\s'\"=,(\[]-[A-Za-z])|(?<=^-[A-Za-z]))"  # also of an option: -I/opt/include
    r"(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\:'\"]+)+[/\\](?P<last>[^\s/\\:'\"]+)"
)
_PUBLIC = re.compile(r"https?://([a-z]+\.)?(pytorch\.org|nvidia\.com|python\.org)(/[^?@]*)?$")
_ADDRESS = re.compile(
    r"[\w.+-]+@(?:[\w-]+(?:\.[\w-]+)+|[\w-]+(?=:))"  # of somebody: jane@corp.example, jane@host:file
    r"|(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"  # IPv4, but no loopback, which identifies none
    r"|(?<![\w:])(?=[\da-f:]*\d)[\da-f]{1,4}(?::[\da-f]{0,4}){3,7}(?![\w:])",  # IPv6
    re.IGNORECASE,
)
_HOME = re.compile(
    r"(?<!\w)(?:(?:/(?:var/)?home|/Users|[A-Za-z]:[/\\]+Users)[/\\]+[^/\\\s:'\"\]]+|/root(?![\w.-]))(?=[/\\\s:'\"\]]|$)"
)
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = len(_PNG) + 25  # bytes of a PNG before its first text
_SCRATCH = ".made-by-gpubench"  # a file in each temporary folder of gpubench
_UNLOCKED_S = 10.0  # age in seconds below which an unlocked folder may be one that its process is about to lock


def write(path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """Write JSON atomically: readers see the old file or the new one. Raises RunFileError for NaN or infinity,
    UsageError where nothing can be written."""
    try:
        replace(Path(path), _parts(data))
    except ValueError as error:
        raise RunFileError(f"{path}: run: expected finite numbers only ({error})") from None
    except RecursionError:
        raise RunFileError(f"{path}: run: expected fewer levels of nesting") from None


def _parts(data: Mapping[str, Any]) -> Iterator[bytes]:
    """JSON indented by 1, benchmark by benchmark: as a whole, a large run takes a gigabyte."""
    opening = b"{\n "
    for key, value in data.items():
        yield opening + _indented(key) + b": "
        opening = b",\n "
        if isinstance(value, list) and value:
            for place, entry in enumerate(value):
                yield (b",\n  " if place else b"[\n  ") + _indented(entry, 2)
            yield b"\n ]"
        else:
            yield _indented(value, 1)
    yield b"\n}\n" if data else b"{}\n"


def _indented(value: Any, levels: int = 0) -> bytes:
    content = json.dumps(value, allow_nan=False).encode()
    try:
        content = msgspec.json.format(content, indent=1)  # ten times as fast as json
    except msgspec.DecodeError:  # half a character, of a file name
        content = json.dumps(value, allow_nan=False, indent=1).encode()
    return content.replace(b"\n", b"\n" + levels * b" ")


def fit(value: Any, levels: int = 40) -> Any:
    """The value as JSON can hold it: ``None`` for a number that isn't finite, a text for values that JSON can't
    represent and for values nested deeper than ``levels``."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | bool | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, dict) and levels:
        return {text_of(key): fit(entry, levels - 1) for key, entry in value.items()}
    if isinstance(value, list | tuple) and levels:
        return [fit(entry, levels - 1) for entry in value]
    return text_of(value)


def text_of(value: object) -> str:
    """The value as a text, or the name of its type if its ``__str__`` raises."""
    try:
        return str(value)
    except (Exception, SystemExit):
        return f"{type(value).__name__} that has no text"


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Put ``content``, whole or in parts, in place of the file in one step. Raises UsageError where that can't be
    done."""
    temporary = None
    for part in path.parent.glob(f".{glob.escape(path.name[:40])}.*.part"):
        with suppress(OSError, UsageError):
            Lock(part)  # refused while its writer lives; a file left by a killed writer does no harm
            part.unlink()
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
        lock = Lock(temporary)
        with open(descriptor, "wb") as stream:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)  # mkstemp's own mode would hide a published file from others
            stream.writelines([content] if isinstance(content, bytes) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        lock.release()
    except OSError as error:
        raise Unwritten(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary or "")  # there is nothing left to remove after a success


def picture_format(path: str | os.PathLike[str]) -> str:
    """``svg`` or ``png``, by the name of a picture's file. Raises UsageError for any other."""
    if (suffix := Path(path).suffix.lower()) not in (".svg", ".png"):
        raise UsageError(f"{path}: a picture's name ends in .svg or .png")
    return suffix[1:]


def is_drawn(path: Path) -> bool:
    """Whether a file is a picture that gpubench drew: its own metadata say so, not a picture's within."""
    if path.suffix.lower() not in (".svg", ".png") or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(65_536)
    if head.startswith(_PNG):
        return head[_PNG_HEADER + 4 :].startswith(b"tEXtSoftware\0gpubench")
    own = head.partition(b"</metadata>")[0]
    return own.count(b"<svg") == 1 and b"<dc:title>gpubench</dc:title>" in own


def require_new(path: str | os.PathLike[str]) -> None:
    """Raise UsageError, before anything is done, unless an output file is new or a picture that gpubench drew: so no
    command replaces its own input, an earlier run or a user's file, whatever the name."""
    path = Path(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no such folder: {path.parent}")
    if os.path.lexists(path) and not is_drawn(path):
        raise UsageError(f"{path}: exists already: choose another name, or remove it first")


def keep(paths: list[Path]) -> list[tuple[Path, Path]]:
    """Rename files to the first number that is free for all: ``run.json`` to ``run.1.json``. Returns the old names and
    the new. Raises UsageError."""
    for number in itertools.count(1):
        moves = [(path, path.with_name(f".{number}.".join(path.name.split(".", 1)))) for path in paths]
        if not any(os.path.lexists(new) for _, new in moves):
            break
    for old, new in moves:
        try:
            old.rename(new)
        except OSError as error:
            raise UsageError(f"{old}: can't be renamed: {error.strerror or error}") from None
    return moves


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A temporary folder. Folders left by killed processes are removed first: a file in them marks them as gpubench's,
    as a name proves nothing, and the folder of a running process is locked."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError, UsageError):
            ours = not left.is_symlink() and (left / _SCRATCH).is_file() and is_own(left)
            if ours and time.time() - left.stat().st_mtime > _UNLOCKED_S:
                Lock(left)
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        Path(name, _SCRATCH).touch()
        lock = Lock(name)
        yield Path(name)
        lock.release()


def is_own(path: Path) -> bool:
    """Whether it belongs to this user."""
    return path.stat().st_uid == getattr(os, "getuid", lambda: 0)()


class Lock:
    """A lock on a folder while a run is under way there; it ends with the process that holds it. Raises UsageError if
    it is still taken after ``wait_s``. Not the package filelock: its file would stay behind when a run is killed."""

    def __init__(self, folder: str | os.PathLike[str], wait_s: float = 0.0) -> None:
        self._descriptor: int | None = None
        with suppress(ImportError, PermissionError):  # no such locks on this system
            import fcntl

            self._descriptor = os.open(folder, os.O_RDONLY)
            latest = time.monotonic() + wait_s
            with suppress(OSError):  # nor on this file system
                while True:
                    try:
                        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        return
                    except BlockingIOError:
                        if time.monotonic() > latest:
                            raise UsageError(f"{folder}: a run is under way there") from None
                        time.sleep(0.1)

    def release(self) -> None:
        """Release the folder's lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = release


def without_paths(text: str) -> str:
    """The text with absolute paths cut down to their last part, without addresses and the names of host and user."""

    def last(place: re.Match[str]) -> str:
        url, names = place["url"], place["quoted"] or place["last"]
        return str(names) if url is None else url if _PUBLIC.match(url) else "(url)"

    text = _ADDRESS.sub("(address)", _PLACE.sub(last, re.sub(r"(?<![\w.])~[A-Za-z_][\w.-]*", "~", text)))
    names = {"host": socket.gethostname()}
    with suppress(KeyError, OSError, ImportError):
        names["user"] = getpass.getuser()
    for kind, name in names.items():
        if len(name) > 2 and name not in _COMMON:
            text = re.sub(rf"\b{re.escape(name)}\b", f"({kind})", text)
    return text


def without_homes(value: Any) -> Any:
    """The arguments of a benchmark, fit to be published: the user's home folder becomes ``~``, further ones ``~1`` and
    so on, so that different names stay different."""
    home = os.path.expanduser("~")
    names = {home: "~"}
    own = re.compile(rf"(?<!\w){re.escape(home)}(?![\w.-])") if len(home) > 1 else _HOME

    def short(place: re.Match[str]) -> str:
        return names.setdefault(place[0], f"~{len(names)}")

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _HOME.sub(short, own.sub(short, value)) if "/" in value or "\\" in value else value
        if isinstance(value, dict):
            return {walk(key): entry if key == "stats" else walk(entry) for key, entry in value.items()}
        return [walk(entry) for entry in value] if isinstance(value, list) else value

    return walk(value)
