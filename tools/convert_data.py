"""Convert a data folder once into the layouts that the authors of the data sets publish:

    python tools/convert_data.py FOLDER OUT

    cifar10/webp/               lossless WebP sheets of CIFAR-10, 500 images in each, and labels in .npy
                                -> cifar-10-batches-bin/data_batch_1.bin ... test_batch.bin
    text/wikitext-2/*.txt.gz    -> wikitext-2/wiki.valid.tokens, wiki.test.tokens (and wiki.train.tokens)
    text/wikitext-2-raw-1MB/    -> wikitext-2/, under the same names
    text/NAME/                  -> NAME/
    every other folder          is copied as it is

The loaders compare the digests of the files afterwards, so that nothing is checked here.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from pathlib import Path

import numpy as np
from PIL import Image


def convert_cifar10(sheets: Path, out: Path) -> None:
    """Write the six files of CIFAR-10's binary version, 10,000 images each."""
    out.mkdir(parents=True)
    for part, names in (("train", [f"data_batch_{n}.bin" for n in range(1, 6)]), ("test", ["test_batch.bin"])):
        files = sorted(sheets.glob(f"{part}_*.webp"))
        images = np.concatenate([np.asarray(Image.open(file).convert("RGB")).reshape(-1, 32, 32, 3) for file in files])
        labels = np.load(sheets / f"{part}_labels.npy", allow_pickle=False)
        records = np.hstack([labels[:, None], images.transpose(0, 3, 1, 2).reshape(len(images), -1)])
        for name, batch in zip(names, np.split(records, len(names)), strict=True):
            batch.tofile(out / name)


def convert_text(folder: Path, out: Path) -> None:
    """Copy the files of a folder; the parts of WikiText-2 are unpacked and get their published names."""
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        part = file.name.removesuffix(".txt.gz")
        if folder.name == "wikitext-2" and part in ("train", "valid", "test"):
            (out / f"wiki.{part}.tokens").write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copyfile(file, out / file.name)


def convert(folder: Path, out: Path) -> None:
    for source in (path for path in folder.iterdir() if path.is_dir()):
        if source.name == "cifar10":
            convert_cifar10(source / "webp", out / "cifar-10-batches-bin")
        elif source.name == "text":
            for text in source.iterdir():
                convert_text(text, out / text.name.removesuffix("-raw-1MB"))
        else:
            shutil.copytree(source, out / source.name, copy_function=shutil.copyfile)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    convert(arguments.folder, arguments.out)
