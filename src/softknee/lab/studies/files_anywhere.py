"""A folder of files, on a disk or in any store that fsspec knows, where every file is written whole or not at all.

On a disk a file is written beside its place, seen safe there (fsync), and then takes the place in one step. An object
store (s3, gcs, abfs, ...) puts an object in one step by itself. Any other store gets a temporary file that is moved.

>>> folder = Folder("memory://doctest/study")
>>> folder.write("trials/a.json", b"{}", what="record")
>>> folder.names("trials"), folder.read("trials/a.json"), folder.read("trials/b.json")
(['a.json'], b'{}', None)
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import ParameterError, SoftkneeError
from ...files import ReadError, WriteError
from ..whole_folder import sync_folder

# Stores in which putting an object is one step: it is there as a whole, or what was there before still is.
_PUTS_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "ocilake", "oss", "memory"})
_TEMPORARY = ".tmp"


class Folder:
    """The folder at a path or URL; names inside are relative, with '/' between. Nothing is made before it is written.

    local: its path where it is on a disk, else None.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        import fsspec  # torch depends on it

        self.url = os.fspath(url)
        try:
            self._fs, root = fsspec.url_to_fs(self.url)
        except (ValueError, ImportError) as error:  # an unknown protocol, or one whose package is not installed
            raise ParameterError(f"The place '{self.url}' cannot be used: {error}.") from error
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self.local = Path(root) if "file" in protocols else None
        self._puts_whole = bool(protocols & _PUTS_WHOLE)
        self._root = root.rstrip("/")

    def place(self, name: str) -> str:
        """The file as a person finds it, for messages."""
        return f"{self.url.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""
        try:
            return self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        except Exception as error:  # each store has errors of its own
            raise ReadError(
                f"'{self.place(name)}' could not be read ({_reason(error)}). Check its permissions."
            ) from error

    def size(self, name: str) -> int | None:
        """The length of a file in bytes; None where there is none."""
        try:
            found = self._fs.info(self._path(name))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise ReadError(f"'{self.place(name)}' could not be looked at ({_reason(error)}).") from error
        return found["size"] if found["type"] == "file" else None

    def names(self, inside: str = "") -> list[str]:
        """The files of a folder inside this one, or of itself, in order; temporaries are not among them."""
        return [name for name in self._listed(inside) if not _is_temporary(name)]

    def entries(self) -> list[str]:
        """The names of all files and folders right here, temporaries left out."""
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise WriteError(f"'{self.url}' is a file, and a folder is needed. Choose another place.")
        return [name for name in self._listed("", files_only=False) if not _is_temporary(name)]

    def write(self, name: str, content: bytes, *, what: str) -> None:
        """Put a file there as a whole; if that fails, what stood there before is unchanged."""
        try:
            if self.local is not None:
                _write_on_disk(self.local / name, content)
            elif self._puts_whole:
                self._fs.pipe_file(self._path(name), content)
            else:
                self._write_and_move(name, content)
        except Exception as error:
            raise WriteError(
                f"The {what} could not be written to '{self.place(name)}' ({_reason(error)}); what stood there "
                "before, if anything, is unchanged. Choose a place that can be written to, or make space there."
            ) from error

    def create(self, name: str, content: bytes) -> bool:
        """Put a small file there if there is none of that name; False where there is one."""
        try:
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
                with (self.local / name).open("xb") as file:
                    file.write(content)
            else:
                self._fs.pipe_file(self._path(name), content, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            raise WriteError(f"'{self.place(name)}' could not be written ({_reason(error)}).") from error
        return True

    def move(self, name: str, to: str) -> None:
        """Give a file another name, which must be free."""
        try:
            if self.local is not None:
                os.rename(self.local / name, self.local / to)
                sync_folder((self.local / to).parent)
            else:
                self._fs.mv(self._path(name), self._path(to))
        except Exception as error:
            raise WriteError(f"'{self.place(name)}' could not be moved to '{to}' ({_reason(error)}).") from error

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        try:
            with suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))
        except Exception as error:
            raise WriteError(f"'{self.place(name)}' could not be removed ({_reason(error)}).") from error

    def clean(self, inside: str = "") -> None:
        """Take away the temporaries that a process which was stopped has left there."""
        for name in self._listed(inside):
            if _is_temporary(name):
                self.remove(f"{inside}/{name}" if inside else name)

    def _listed(self, inside: str, *, files_only: bool = True) -> list[str]:
        path = self._path(inside) if inside else self._root
        try:
            self._fs.invalidate_cache()  # a store may remember an earlier answer
            found: list[dict[str, Any]] = self._fs.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise ReadError(f"'{self.place(inside)}' could not be looked into ({_reason(error)}).") from error
        wanted = [one["name"].rstrip("/") for one in found if one["type"] == "file" or not files_only]
        return sorted(one.rpartition("/")[2] for one in wanted)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write_and_move(self, name: str, content: bytes) -> None:
        path = self._path(name)
        temporary = f"{path.rpartition('/')[0]}/{_temporary_name(path.rpartition('/')[2])}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self._fs.pipe_file(temporary, content)
            try:
                self._fs.mv(temporary, path)
            except FileExistsError:  # not every store moves onto a file that is there
                self._fs.rm_file(path)
                self._fs.mv(temporary, path)
        finally:
            with suppress(Exception):
                self._fs.rm_file(temporary)


def _write_on_disk(target: Path, content: bytes) -> None:
    for missing in reversed([folder for folder in target.parents if not folder.exists()]):
        missing.mkdir(exist_ok=True)
        sync_folder(missing.parent)
    temporary = target.with_name(_temporary_name(target.name))
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _temporary_name(name: str) -> str:
    return f".{name}.{secrets.token_hex(4)}{_TEMPORARY}"


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


def _reason(error: Exception) -> str:
    if isinstance(error, SoftkneeError):
        return str(error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
