"""Files of sources, local or in a store: which a pattern or a folder means, their stamps, never outside of a root."""

from __future__ import annotations

import codecs
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from .._core import file_stamps
from ..errors import CorruptionError, SchemaError
from ..storage.files import object_stamps, read_file
from ..storage.open import open_store
from ..storage.store import is_url, split_url

_MARKS = {  # the longer ones first: that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
NO_STAMPS: Mapping[str, str] = {}


def suffixes(extension: str | None) -> tuple[str, ...]:
    """The extension that was said, or those of images."""
    return (extension.lower(),) if extension else IMAGE_SUFFIXES


def short_names(files: Sequence[str]) -> list[str]:
    """The files' paths relative to the folder that all of them are in."""
    if len(files) == 1:
        return [os.path.basename(files[0])]
    if all(map(is_url, files)):
        places = [file.partition("://")[2] for file in files]
        common = posixpath.commonpath([posixpath.dirname(place) for place in places])
        return [posixpath.relpath(place, common or ".") for place in places]
    common = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
    return [os.path.relpath(os.path.abspath(path), common).replace(os.sep, "/") for path in files]


def read_text(path: str) -> str:
    """A file of text: UTF-8, or UTF-16 and UTF-32 with a byte order mark."""
    return decoded_text(read_file(path), path)


def decoded_text(data: bytes, path: str, *, whole: bool = True) -> str:
    """The text of a file's bytes; if they are not the whole of it, the last character may be cut off."""
    try:
        return codecs.getincrementaldecoder(encoding_of(data) or "utf-8-sig")().decode(data, whole)
    except UnicodeDecodeError as error:
        raise not_text(path, error) from None


def encoding_of(data: bytes) -> str | None:
    """The encoding that a byte order mark names, other than UTF-8."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)


def head_of(path: str, most: int) -> bytes:
    """The first bytes of a file, or of an object in a store."""
    if is_url(path):
        store, name = open_store(path)
        return store.read(name, 0, min(store.entry(name).size, most))
    with open(path, "rb") as file:
        return file.read(most)


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file that hold something, stripped, with their numbers."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def not_text(path: str, error: UnicodeDecodeError) -> CorruptionError:
    """The error for a file that should be text."""
    return CorruptionError(
        f"expected UTF-8 text, got the byte 0x{error.object[error.start]:02x}. Convert the file to UTF-8", path
    )


def stamp_of(path: str, known: Mapping[str, str] = NO_STAMPS) -> str:
    """A file's size and time of change, or an object's size and version; empty when it cannot be looked at."""
    return stamps_of_files([path], known)[0]


def stamps_of_files(paths: Sequence[str], known: Mapping[str, str] = NO_STAMPS) -> list[str]:
    """The stamps of files, in order. Objects that a listing knows are not asked for again.

    known  stamps of objects by URL
    """
    if not any(map(is_url, paths)):
        return file_stamps(list(paths))
    asked = object_stamps((path for path in paths if is_url(path)), known)
    return [known.get(path) or (asked.get(path, "") if is_url(path) else file_stamps([path])[0]) for path in paths]


def largest_of(stamps: Mapping[str, str]) -> int:
    """The bytes of the largest object that a listing knows; 0 where it knows none."""
    return max((int(stamp.partition(" ")[0]) for stamp in stamps.values() if stamp), default=0)


def within(root: str, name: str, place: str) -> str:
    """The path that a catalog names, which has to be below the root. Links are followed: they are the owner's."""
    if is_url(root) or is_url(name):
        return _url_within(root, name, place)
    base = os.path.abspath(root)
    path = os.path.normpath(os.path.join(base, name))
    if "\0" in name or not path.startswith(base.rstrip(os.sep) + os.sep) or path == base:
        raise _outside(root, name, place)
    return path if os.path.isabs(name) else os.path.normpath(os.path.join(root, name))


def _url_within(root: str, name: str, place: str) -> str:
    """The same where the root is a folder of a store; a name may be a whole URL below it."""
    if not is_url(root):
        raise _outside(root, name, place)
    store, base = split_url(root)
    if is_url(name):
        other, inner = split_url(name)
        path = inner if other == store else ".."
    else:
        path = posixpath.join(base, name)
    path = posixpath.normpath(path)
    below = path.startswith(f"{base}/") if base else not path.startswith(("..", "/"))
    if "\0" in name or not below or path == ".":
        raise _outside(root, name, place)
    return f"{store}/{path}"


def _outside(root: str, name: str, place: str) -> SchemaError:
    hint = "Say root= if the files are in another folder"
    return SchemaError(f"expected a path below {root}, got {name!r}", place, hint)


HEAD = 512  # bytes that tell the kind of a file
_UNPACK = "Extract it, then build the folder"
_TABLE = "Save it as CSV or Parquet"
_VIDEO = "Extract its frames to a folder of images first"
_AUDIO = "List the files in a CSV file and load each in Python: penstock.csv(path, load=function)"
_IMAGE = "Convert it to JPEG or PNG"

# By the end of a name, where first bytes say less: an .xlsx, an .npz and a .pt are zip archives too.
_NAMES = {
    ".xlsx": ("an Excel workbook", _TABLE),
    ".xls": ("an Excel workbook", _TABLE),
    ".ods": ("a spreadsheet", _TABLE),
    ".docx": ("a Word document", "Export its text first"),
    ".npz": ("a file of NumPy arrays", "Build it in Python: penstock.build(dict(numpy.load(path)), out)"),
    ".npy": ("a NumPy array", 'Build it in Python: penstock.build({"x": numpy.load(path)}, out)'),
    ".pt": ("a PyTorch file", "Load it in Python and build a list or a dict of arrays"),
    ".pth": ("a PyTorch file", "Load it in Python and build a list or a dict of arrays"),
    ".pkl": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    ".pickle": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    ".mat": ("a MATLAB file", "Load it in Python (scipy.io.loadmat) and build a dict of arrays"),
    ".yaml": ("a YAML file", "Save it as JSON"),
    ".yml": ("a YAML file", "Save it as JSON"),
    ".svg": ("an SVG drawing", _IMAGE),
}
_STARTS = {
    b"II*\0": ("a TIFF image", _IMAGE),
    b"MM\0*": ("a TIFF image", _IMAGE),
    b"II+\0": ("a TIFF image", _IMAGE),
    b"\xff\x0a": ("a JPEG XL image", _IMAGE),
    b"\0\0\0\x0cJXL ": ("a JPEG XL image", _IMAGE),
    b"\0\0\0\x0cjP  ": ("a JPEG 2000 image", _IMAGE),
    b"\0\0\x01\0": ("an icon", _IMAGE),
    b"8BPS": ("a Photoshop image", _IMAGE),
    b"%PDF": ("a PDF document", "Export its pages as images, or its text"),
    b"PK\x03\x04": ("a zip archive", _UNPACK),
    b"PK\x05\x06": ("an empty zip archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", _UNPACK),
    b"Rar!": ("a RAR archive", _UNPACK),
    b"\x1f\x8b": ("a gzip file", "Decompress it: gunzip -k FILE"),
    b"BZh": ("a bzip2 file", "Decompress it: bunzip2 -k FILE"),
    b"\xfd7zXZ\0": ("an xz file", "Decompress it: unxz -k FILE"),
    b"\x28\xb5\x2f\xfd": ("a Zstandard file", "Decompress it: unzstd FILE"),
    b"\x89HDF\r\n\x1a\n": ("an HDF5 file", "Open it with h5py and build a dict of its arrays in Python"),
    b"CDF\x01": ("a NetCDF file", "Open it with xarray and build a dict of its arrays in Python"),
    b"CDF\x02": ("a NetCDF file", "Open it with xarray and build a dict of its arrays in Python"),
    b"\x93NUMPY": ("a NumPy array", 'Build it in Python: penstock.build({"x": numpy.load(path)}, out)'),
    b"SQLite format 3": ("an SQLite database", "Export its tables as CSV"),
    b"\xd0\xcf\x11\xe0": ("an old Excel or Word file", _TABLE),
    b"PAR1": ("a Parquet file", "Give it a name that ends in .parquet"),
    b"ARROW1": (
        "an Arrow or Feather file",
        "Build it in Python: penstock.build(pyarrow.feather.read_table(path), out)",
    ),
    b"ID3": ("an MP3 recording", _AUDIO),
    b"fLaC": ("a FLAC recording", _AUDIO),
    b"OggS": ("an Ogg recording", _AUDIO),
    b"\x1a\x45\xdf\xa3": ("a Matroska or WebM video", _VIDEO),
    b"\x80\x02": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    b"\x80\x03": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    b"\x80\x04": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    b"\x80\x05": ("a pickle, which Penstock never loads", "Load it in Python and build a list or a dict of arrays"),
    b"\xff\xd8\xff": ("a JPEG image", "Put images into a folder, and build the folder"),
    b"\x89PNG": ("a PNG image", "Put images into a folder, and build the folder"),
    b"GIF8": ("a GIF image", "Put images into a folder, and build the folder"),
    b"version https://git-lfs": ("a pointer of Git LFS", "Fetch the file itself: git lfs pull"),
}
_BRANDS = {  # of ISO media files, in bytes 8 to 12
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"heim"), ("a HEIC image", _IMAGE)),
    **dict.fromkeys((b"avif", b"avis"), ("an AVIF image", _IMAGE)),
}
_RIFF = {
    b"WAVE": ("a WAV recording", _AUDIO),
    b"AVI ": ("an AVI video", _VIDEO),
    b"WEBP": ("a WebP image", "Put images into a folder, and build the folder"),
}


def kind_of_bytes(data: bytes) -> tuple[str, str] | None:
    """What a file is by its first bytes, and what to do with it."""
    for start, kind in _STARTS.items():
        if data.startswith(start):
            return kind
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], ("an MP4 or QuickTime video", _VIDEO))
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    lowered = data[:HEAD].lstrip().lower()
    if lowered.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, maybe of a download that failed", "Download the file again"
    if b"<svg" in lowered:
        return _NAMES[".svg"]
    return None


def kind_of_file(path: str) -> tuple[str, str] | None:
    """What a file is, and what to do with it."""
    name = os.path.basename(path).lower()
    try:
        with open(path, "rb") as file:
            data = file.read(HEAD)
    except OSError:
        return None
    known = _NAMES.get(os.path.splitext(name)[1]) or kind_of_bytes(data)
    if known is not None:
        kind, fix = known
        inner = os.path.splitext(os.path.splitext(name)[0])[1]
        if kind.endswith(("gzip file", "bzip2 file", "xz file", "Zstandard file")) and inner:
            kind = f"{kind} of {inner[1:]}"
        return kind, fix.replace("FILE", path)
    if not data:
        return "an empty file", "Give the file that holds the data"
    if text := shown_text(data):
        return f"a text file that begins with {text!r}", "Save its lines as CSV or JSON lines"
    return None


def shown_text(data: bytes) -> str:
    """The first words of bytes that are printable text; nothing of any others."""
    try:
        text = data[:HEAD].decode("utf-8", "ignore" if len(data) >= HEAD else "strict")
    except UnicodeDecodeError:
        return ""
    printable = all(letter.isprintable() or letter in "\t\r\n" for letter in text)
    return " ".join(text.split())[:20] if printable else ""
