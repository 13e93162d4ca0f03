"""Pictures of every kind that people have, and of every kind that breaks; none of them crashes."""

import gzip
import io
import random
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from regard.data import pictures
from regard.data.examples import read_once
from regard.data.pictures import Picture, PictureError, decode, read
from regard.data.read import Faults
from regard.data.store import fingerprint
from regard.errors import DataError


def picture(width=7, height=5, seed=0, mode="RGB"):
    dice = np.random.default_rng(seed)
    return Image.fromarray(dice.integers(0, 256, (height, width, 3), np.uint8)).convert(mode)


def content(made, kind="PNG", **more):
    file = io.BytesIO()
    made.save(file, kind, **more)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Two classes of three pictures, and what is none."""
    for label in ("cat", "dog"):
        (tmp_path / "set" / label).mkdir(parents=True)
        for number in range(3):
            made = picture(seed=number + 10 * (label == "dog"))
            (tmp_path / "set" / label / f"{number}.png").write_bytes(content(made))
    (tmp_path / "set" / "cat" / "notes.txt").write_text("no picture")
    return tmp_path / "set"


def test_a_folder_of_classes_and_a_tar_of_it_are_read_alike(folder, tmp_path):
    found = list(read([folder], "", "", Faults()))
    assert [one.label for one in found] == ["cat"] * 3 + ["dog"] * 3
    assert found[0].where == str(folder / "cat" / "0.png")
    for ending, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tar.xz", "w:xz")):
        packed = tmp_path / f"set{ending}"
        with tarfile.open(packed, mode) as tar:
            for path in sorted(folder.rglob("*.png")):
                tar.add(path, f"./{path.parent.name}/{path.name}")
            link = tarfile.TarInfo("cat/link.png")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
        again = list(read([packed], "", "", Faults()))
        assert [one[:2] for one in again] == [one[:2] for one in found]


def test_a_table_names_files_beside_it_or_in_a_tar(folder, tmp_path):
    table = tmp_path / "set.tsv"
    table.write_text("image\tlabel\nset/cat/0.png\tcat\nset/dog/1.png\tdog\n")
    found = list(read([table], "image", "label", Faults()))
    assert [one.label for one in found] == ["cat", "dog"]
    assert found[0].content == (folder / "cat/0.png").read_bytes()
    packed = tmp_path / "set.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(folder / "cat/0.png", "a.png")
    table.write_text("image\tlabel\na.png\tcat\nb.png\tdog\n")
    faults = Faults(skip=True)
    assert len(list(read([table, packed], "image", "label", faults))) == 1
    assert faults.first == [f"{table}:3: there is no picture 'b.png' in the tar"]
    with pytest.raises(DataError, match=r"set.tsv:1: there is no column 'photo' \(task.image\)"):
        list(read([table], "photo", "label", Faults()))


def write_idx(path, array):
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))
    return path


def test_idx_files_are_read_as_they_say(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5), np.uint8)
    images = write_idx(tmp_path / "train-images-idx3-ubyte.gz", pixels)
    labels = write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([3, 1, 4, 1], np.uint8))
    found = list(read([labels, images], "", "", Faults()))
    assert [one.label for one in found] == ["3", "1", "4", "1"]
    assert (decode(found[2].content, 1)[0] == pixels[2]).all()
    short = write_idx(tmp_path / "short-idx1-ubyte.gz", np.array([3], np.uint8))
    with pytest.raises(DataError, match="there are 4 pictures and 1 labels"):
        list(read([images, short], "", "", Faults()))
    cut = gzip.decompress(images.read_bytes())[:-7]
    images.write_bytes(gzip.compress(cut))
    with pytest.raises(DataError, match="there must be 120 bytes as its head says"):
        list(read([images, labels], "", "", Faults()))
    huge = tmp_path / "huge-images-idx3-ubyte"
    huge.write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 2**31))
    with pytest.raises(DataError, match="bytes as its head says"):
        list(read([huge, labels], "", "", Faults()))
    with pytest.raises(DataError, match="not an idx file of bytes in 3 dimensions"):
        list(read([labels.rename(tmp_path / "x-idx3"), short], "", "", Faults()))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
@pytest.mark.parametrize("size", [(7, 5), (1, 1), (1, 300)])
def test_all_common_kinds_are_decoded_as_pillow_has_them(kind, size):
    made = picture(*size)
    raw = content(made, kind)
    wanted = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB")).transpose(2, 0, 1)
    assert (decode(raw) == wanted).all() and decode(raw).dtype == np.uint8
    assert decode(raw, 1).shape == (1, *wanted.shape[1:])


def test_odd_modes_are_what_they_are_meant_to_look_like():
    for mode in ("L", "1", "P", "CMYK", "YCbCr", "LAB", "HSV"):
        kind = {"CMYK": "JPEG", "YCbCr": "JPEG", "LAB": "TIFF", "HSV": None}.get(mode, "PNG")
        if kind is not None:
            assert decode(content(picture(mode=mode), kind)).shape == (3, 5, 7)
    deep = Image.fromarray(np.array([[0, 65535], [257 * 100, 257 * 7]], np.uint16))
    assert decode(content(deep), 1)[0].tolist() == [[0, 255], [100, 7]]
    clear = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    clear.putpixel((1, 0), (10, 20, 30, 255))
    assert decode(content(clear))[:, 0].T.tolist() == [[255, 255, 255], [10, 20, 30]]
    frames = [picture(seed=n, mode="P") for n in range(3)]
    moving = content(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (decode(moving) == decode(content(frames[0], "GIF"))).all()


def test_a_camera_held_sideways_is_turned_back():
    made = picture()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    raw = content(made, "PNG", exif=exif)
    wanted = np.asarray(made.transpose(Image.Transpose.ROTATE_270)).transpose(2, 0, 1)
    assert (decode(raw) == wanted).all()


def test_what_is_damaged_is_an_error_that_says_so_and_never_a_crash():
    dice = random.Random(0)
    raw = {kind: content(picture(40, 30), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF")}
    with pytest.raises(PictureError, match="cannot identify its format"):
        decode(b"no picture at all")
    with pytest.raises(PictureError):
        decode(b"")
    for whole in raw.values():
        with pytest.raises(PictureError):
            decode(whole[:20])
        for _ in range(60):
            bent = bytearray(whole)
            for _ in range(dice.randint(1, 20)):
                bent[dice.randrange(len(bent))] = dice.randrange(256)
            try:
                found = decode(bytes(bent[: dice.randint(1, len(bent))]))
            except PictureError as error:
                assert str(error)
            else:
                assert found.dtype == np.uint8 and found.shape[0] == 3


def test_a_bomb_is_refused_by_its_head(monkeypatch):
    def png(width, height):
        import zlib

        def chunk(kind, data):
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", b"") + chunk(b"IEND", b"")

    with pytest.raises(PictureError, match=r"(may have 67,108,864 pixels|exceeds limit)"):
        decode(png(10**5, 10**4))
    monkeypatch.setattr(pictures, "PIXELS", 10)
    with pytest.raises(PictureError, match="it may have 10 pixels, but has 35"):
        decode(content(picture()))


def test_a_file_too_large_and_a_broken_tar_are_told(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "LARGEST", 100)
    faults = Faults(skip=True)
    (folder / "cat" / "big.png").write_bytes(b"x" * 101)
    found = [one for one in read([folder], "", "", faults) if one.where.endswith("big.png")]
    assert not found and "big.png: a picture may have" in " ".join(faults.first)
    packed = tmp_path / "set.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(folder, "set")
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"set.tar.gz: cannot be read to its end"):
        list(read([packed], "", "", Faults(skip=True)))
    with pytest.raises(DataError, match="pictures must be a folder with a folder for each class"):
        list(read([tmp_path / "x.mp4"], "", "", Faults()))


def test_examples_keep_their_bytes_as_they_are(folder, tmp_path):
    rows = list(read([folder], "", "", Faults()))
    for _ in range(2):  # written, then found in the cache
        kept = read_once(tmp_path / "c", [folder], Picture, (), rows, Faults(), "a picture")
        assert list(kept) == rows and kept[4] == rows[4] and len(kept) == 6


def test_a_class_of_another_name_is_another_set(folder, tmp_path):
    before = fingerprint([folder])
    assert fingerprint([folder]) == before
    (folder / "cat").rename(folder / "cow")
    assert fingerprint([folder]) != before
