"""What a file is that no source reads: its kind by its first bytes and its name, and what to do with it."""

from __future__ import annotations

import os

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
