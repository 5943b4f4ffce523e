"""Runs that are packed into one archive, unpacked for as long as they are read."""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from cmbpo.evaluation import evaluated

ENDINGS = (".tar.xz", ".tar.gz", ".tgz", ".tar")
"""How the names of archives end."""
LARGEST = 250_000_000
"""Bytes that an archive may hold once it is unpacked."""
MOST = 50_000
"""Files and folders that an archive may hold."""

_READ = re.compile(
    rf"config\.json|{re.escape(evaluated.FILE)}|(progress|episodes)\.csv(\.gz|\.xz)?"
)


class UnreadableError(ValueError):
    """An archive that cannot be unpacked, in one sentence."""


def is_packed(path: Path) -> bool:
    """Whether a path is an archive, by its name."""
    return path.name.endswith(ENDINGS) and path.is_file()


def count(path: Path) -> int:
    """How many runs an archive holds."""
    with _archive(path) as archive:
        return sum(_is_config(member) for member in _members(archive))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A temporary folder of the archive's name with its runs: what is read of them, no more."""
    with TemporaryDirectory(prefix="cmbpo-") as made:
        folder = Path(made) / path.name
        folder.mkdir()
        with _archive(path) as archive:
            for member in _members(archive):
                plain = member.isreg() and not member.issparse()
                if plain and _READ.fullmatch(_name(member)):
                    archive.extract(member, folder, filter="data")
        yield folder


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for number, member in enumerate(archive):
        if number == MOST:
            raise OSError(f"it holds more than {MOST:,} files and folders")
        yield member


@contextmanager
def _archive(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive to be read from its beginning to its end; what goes wrong has its name."""
    import lzma  # here, because some builds of Python lack it

    try:
        with _stream(path) as stream, tarfile.open(fileobj=_Bounded(stream), mode="r|") as archive:
            yield archive
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise UnreadableError(f"{path} cannot be unpacked: {error}") from error


def _stream(path: Path) -> BufferedIOBase:
    if path.suffix == ".xz":
        import lzma  # here, because some builds of Python lack it

        return lzma.open(path)
    return gzip.open(path) if path.suffix in (".gz", ".tgz") else path.open("rb")


def _is_config(member: tarfile.TarInfo) -> bool:
    return _name(member) == "config.json"


def _name(member: tarfile.TarInfo) -> str:
    return PurePosixPath(member.name).name


class _Bounded(BufferedIOBase):
    """A stream that ends in an error beyond `LARGEST` bytes, whatever its headers announce."""

    def __init__(self, stream: BufferedIOBase):
        self.stream, self.left = stream, LARGEST

    def read(self, size: int | None = -1, /) -> bytes:
        content = self.stream.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise OSError(f"it holds more than {LARGEST:,} bytes")
        return content
