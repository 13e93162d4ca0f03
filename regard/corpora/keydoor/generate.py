"""Records of the key and the doors, the same every time.

python -m regard.corpora.keydoor.generate
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from ...data.environments import KeyDoor, episodes, write

PARTS = {"train": (2000, 0), "valid": (500, 1), "test": (1000, 2)}  # how many, and the seed


def main(folder: Path) -> None:
    for part, (count, seed) in PARTS.items():
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "records.csv"
            process = KeyDoor()
            write(path, process, episodes(process, None, count, seed, 1000))
            content = path.read_bytes()
        (folder / f"{part}.csv.gz").write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(Path(__file__).parent)
