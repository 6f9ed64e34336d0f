#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Fuzzes one target for a while: first the inputs that once broke it, then what grows out of seeds.

Seeds are made from the files that the real libraries wrote, in $MGROUPS_SHARED_DIR; without that folder fuzzing starts
from nothing. They and what is found lie beside the target, in corpus/TARGET and found/TARGET: an input that breaks the
target belongs into tests/fuzz/regressions/TARGET once it has been minimised (-minimize_crash=1).
"""
import argparse
import collections
import hashlib
import io
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile

# Sizes are those of the attacks that we care about: small inputs that claim to be large. What a target may hold altogether it
# limits itself, to a multiple of its input.
LONGEST = 65536
LIMITS = ["-malloc_limit_mb=64", "-rss_limit_mb=1024", "-timeout=10"]
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
DATA_FILES = ["__0_0.distcp", "__0_1.distcp", "__1_0.distcp", "__1_1.distcp"]


def archives(data):
    """The archives in a data file: each from its first local header to behind its closing record."""
    begin = data.find(b"PK\x03\x04")
    while begin >= 0:
        end = data.find(b"PK\x05\x06", begin)
        if end < 0:
            return
        yield data[begin:end + 22]
        begin = data.find(b"PK\x03\x04", end)


def without_checksums(data):
    """The same with all checksums in directories set to 0, "none": changed bytes are then looked at, not just refused."""
    out = bytearray(data)
    at = out.find(b"PK\x01\x02")
    while at >= 0:
        out[at + 16:at + 20] = bytes(4)
        at = out.find(b"PK\x01\x02", at + 4)
    return bytes(out)


def pickles():
    """What the files may lack: values of every kind, in every protocol that is read."""
    value = [None, True, -1, 2**40, 2**64 - 1, -2**80, 1.5, "text \u00fc", b"\x00\xff", bytearray(b"ab"), (), (1,), (1, 2, 3, 4),
             {"key": [[], {}]}, {1, 2}, frozenset([3]), collections.OrderedDict(a=1), collections.Counter("aab"), range(3)]
    return [pickle.dumps(value + [value[-6:]], protocol) for protocol in range(2, 6)]


def unusual_archives():
    """Archives with more records than are searched one by one, without and with 64-bit sizes."""
    usual = zipfile.ZIP64_LIMIT
    for limit in (usual, 0):
        zipfile.ZIP64_LIMIT = limit
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("archive/data.pkl", pickles()[0])
            for i in range(20):
                archive.writestr(f"archive/data/{i}", bytes(i))
        yield without_checksums(out.getvalue())
    zipfile.ZIP64_LIMIT = usual


def joined(files):
    """Several files as one input; see split_files."""
    return b"".join(struct.pack("<I", len(file)) + file for file in files)


def read(path):
    return path.read_bytes() if path.is_file() else b""


def seeds(target, shared):
    """Yields inputs for a target."""
    def files(pattern):
        return sorted(path for path in shared.rglob(pattern) if path.is_file())

    if target == "json":
        for path in files("*.json"):
            yield read(path)
    if target in ("metadata", "pickle"):
        for path in files(".metadata"):
            yield read(path)
    if target in ("pickle", "object"):
        yield from pickles()
        for path in files("*.distcp") + files("*.pt"):
            for archive in archives(read(path)):
                # Up to its STOP.
                begin = archive.find(b"\x80", archive.find(b"data.pkl"))
                yield archive[begin:archive.find(b".PK\x07\x08", begin) + 1]
    if target in ("archive", "object"):
        yield from unusual_archives()
        for path in files("*.distcp") + files("*.pt"):
            for archive in archives(read(path)):
                yield archive
                yield without_checksums(archive)
    if target == "checksums":
        yield b"mgroups checksums 1\nsave 0123456789abcdef\nblock 262144\nfile 262145 11111111 22222222 __0_0.distcp\n"
    if target == "safetensors":
        for path in files("*.safetensors"):
            yield joined([b"", read(path)])
        for folder in sorted({path.parent for path in files("*.safetensors")}):
            models = [read(path) for path in sorted(folder.glob("*.safetensors"))]
            yield joined([read(folder / "model.safetensors.index.json")] + models[:4])
    if target == "checkpoint":
        for path in files(".metadata"):
            folder = path.parent
            data = [read(folder / name) for name in DATA_FILES]
            others = [read(folder / name) for name in ("metadata.json", "common.pt")]
            for change in (lambda file: file, without_checksums):
                yield joined([read(path)] + others + [change(file) for file in data])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("target", help="name of the source, without its ending")
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("MGROUPS_FUZZ_SECONDS", 5)),
                        help="how long (default: $MGROUPS_FUZZ_SECONDS, or 5)")
    arguments, rest = parser.parse_known_args()

    shared = pathlib.Path(os.environ.get("MGROUPS_SHARED_DIR", "../shared"))
    corpus = arguments.program.parent / "corpus" / arguments.target
    found = arguments.program.parent / "found" / arguments.target
    shutil.rmtree(corpus, ignore_errors=True)  # else every run would take longer than the one before
    corpus.mkdir(parents=True)
    found.mkdir(parents=True, exist_ok=True)
    for seed in seeds(arguments.target, shared):
        if 0 < len(seed) <= LONGEST:
            (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)

    command = [arguments.program.resolve(), *LIMITS, f"-max_len={LONGEST}", f"-artifact_prefix={found.resolve()}/", *rest]
    environment = {**os.environ, **SANITIZERS}
    regressions = sorted((pathlib.Path(__file__).parent / "regressions" / arguments.target).glob("*"))
    print(f"{len(regressions)} regressions, {len(list(corpus.iterdir()))} seeds", flush=True)
    status = subprocess.run([*command, *regressions], env=environment).returncode if regressions else 0
    fuzzing = [f"-max_total_time={arguments.seconds}", "-print_final_stats=1", corpus]
    return status or subprocess.run([*command, *fuzzing], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
