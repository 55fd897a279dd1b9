"""penstock index: where each record begins, kept beside the file."""

from __future__ import annotations

import click

from ..records.index import dali_path, sidecar_path, write_index
from ..records.inspect import counted, opening
from ..storage.files import local_path
from ..storage.local import publish
from .errors import WELL, Command, for_each
from .output import Bar, console, print_json
from .paths import check_there, expand_all


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dali", is_flag=True, help="Write FILE.idx too, the text that DALI reads.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file and line.")
def index(files: tuple[str, ...], dali: bool, as_json: bool) -> int:
    """Write an index beside each FILE.

    With FILE.index, FILE opens without a scan. The whole file is read once, for its checksum: an index never fits a
    file that has changed.
    """
    for file in files:
        local_path(file, "FILE")  # the index would lie beside a copy in the cache
    with Bar(expand_all(files)) as bar:

        def work(path: str) -> int:
            check_there(path)
            with opening(path):
                found = write_index(path, progress=bar)
            written = [str(sidecar_path(path))]
            if dali:
                publish(dali_path(path), found.to_dali().encode("ascii"))
                written.append(str(dali_path(path)))
            bar.hide()
            if as_json:
                checksum = f"{found.shard_crc32c:08x}"
                entry = {"file": path, "records": len(found), "bytes": found.shard_size, "crc32c": checksum}
                print_json({**entry, "written": written})
            else:
                line = f"{' and '.join(written)}: {counted(len(found), 'record')}"
                console().print(line, markup=False, soft_wrap=True)
            return WELL

        return for_each(bar, work, as_json=as_json)
