# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""`mgroups verify` and `mgroups convert` against the shared fixtures and cases."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

MGROUPS = os.path.join(os.environ["MGROUPS_TOOL_DIR"], "mgroups")
SHARED = os.environ["MGROUPS_SHARED_DIR"]
# As their READMEs and cases.json say. A key twice and the like are faults, too.
BROKEN = {"torch2.14_distcp_safetensors_BROKEN", "dcp-one-bit-flipped", "dcp-one-ranks-file-missing", "dcp-metadata-file-missing",
          "dcp-parent-folder-given", "run-folder-newest-is-incomplete", "st-duplicate-keys", "st-index-names-a-missing-file",
          "st-metadata-and-no-tensors-broken", "st-reserved-name-as-tensor", "st-shard-cut-short"}
NO_CHECKPOINTS = {"mcore_golden", "st-hub-cache-links", "st-index-escapes-the-folder"}
# What a safetensors file cannot hold: a dtype, a name.
NO_SAFETENSORS = {"torch2.14_all_dtypes", "dcp-odd-key-names"}


def run(*arguments):
    done = subprocess.run([MGROUPS, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def tensors(path):
    status, out, err = run("inspect", path, "--json", "--sha256")
    assert status == 0, err
    return {key: (value["dtype"], value["shape"], value["sha256"]) for key, value in json.loads(out)["tensors"].items()}


def values(path):
    status, out, err = run("inspect", path, "--json", "--values")
    assert status == 0, err
    found = json.loads(out)
    return found["values"], found.get("common")


def check(name, path, scratch):
    status, out, err = run("verify", path, "--json")
    report = json.loads(out)
    assert (status, report["whole"]) == ((1, False) if name in BROKEN else (0, True)), out
    assert bool(report["faults"]) == (name in BROKEN), out
    lines = run("verify", path)[1].splitlines()
    assert len([line for line in lines if line.startswith("fault: ")]) == len(report["faults"]), lines
    if name in BROKEN:
        return
    source = tensors(path)
    for format in ("torch_dist", "dcp", "safetensors"):
        target = os.path.join(scratch, format)
        status, out, err = run("convert", path, target, "--to", format, "--drop-objects", "--max-file-size", "1KB")
        if format == "safetensors" and name in NO_SAFETENSORS:
            assert status == 1 and not os.path.exists(target) and not os.listdir(scratch), (format, out, err)
            continue
        assert status == 0, err
        assert tensors(target) == source, format
        assert run("verify", target)[0] == 0, format
        shutil.rmtree(target)


def check_objects(scratch):
    """Objects and common state from Megatron's form to PyTorch's and back."""
    source = os.path.join(SHARED, "fixtures", "mcoreHEAD_torch2.14")
    again, plain = os.path.join(scratch, "again"), os.path.join(scratch, "plain")
    assert run("convert", source, again, "--to", "torch_dist")[0] == 0
    assert values(again) == values(source)
    assert run("convert", source, plain, "--to", "dcp")[0] == 0
    assert values(plain)[0]["args"] == values(source)[1]["args"]
    assert run("inspect", plain, "no such key")[0] == 1
    # An existing folder of another kind is somebody's.
    status, _, err = run("convert", source, scratch, "--to", "dcp", "--drop-objects")
    assert status == 1 and "not a checkpoint" in err, err
    status, _, err = run("convert", source, again, "--to", "safetensors", "--drop-objects")
    assert status == 1 and "no safetensors files" in err, err


def check_manifest(scratch):
    """Megatron-Core's integrity.json: every SHA-256 in it is compared."""
    path = os.path.join(scratch, "manifest")
    shutil.copytree(os.path.join(SHARED, "fixtures", "mcoreHEAD_torch2.14"), path)
    os.chmod(path, 0o755)
    files = {}
    for name in os.listdir(path):
        if name == "integrity.json":
            continue
        with open(os.path.join(path, name), "rb") as file:
            files[name] = hashlib.sha256(file.read()).hexdigest()
    manifest = os.path.join(path, "integrity.json")
    if os.path.exists(manifest):
        os.remove(manifest)
    with open(manifest, "w") as file:
        json.dump({"algorithm": "sha256", "files": files}, file)
    assert run("verify", path)[0] == 0
    files["metadata.json"] = "0" * 64
    files["gone"] = "0" * 64
    with open(manifest, "w") as file:
        json.dump({"algorithm": "sha256", "files": files}, file)
    status, out, _ = run("verify", path)
    assert status == 1 and out.count("fault: ") == 2 and "metadata.json" in out and "gone" in out, out


def check_every_byte(scratch):
    """In a checkpoint of ours, a flipped byte of any file is a fault, or a file that is not ours any more."""
    path = os.path.join(scratch, "ours")
    source = os.path.join(SHARED, "fixtures", "mcoreHEAD_torch2.14")
    assert run("convert", source, path)[0] == 0
    for name in sorted(os.listdir(path)):
        file = os.path.join(path, name)
        with open(file, "rb") as handle:
            good = handle.read()
        for at in range(0, len(good), max(1, len(good) // 40)):
            bad = bytearray(good)
            bad[at] ^= 0x10
            with open(file, "wb") as handle:
                handle.write(bad)
            status, out, _ = run("verify", path)
            other_writer = name == ".metadata" and "belongs to an earlier save" in out
            assert status == 1 and "fault: " in out or other_writer, (name, at, out)
        with open(file, "wb") as handle:
            handle.write(good)
    assert run("verify", path)[0] == 0


def main():
    checked = 0
    for kind in ("fixtures", "cases"):
        for name in sorted(os.listdir(os.path.join(SHARED, kind))):
            path = os.path.join(SHARED, kind, name)
            if not os.path.isdir(path) or name in NO_CHECKPOINTS:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    check(name, path, scratch)
                except AssertionError as error:
                    raise AssertionError(f"{name}: {error}") from error
            checked += 1
    for part in (check_objects, check_manifest, check_every_byte):
        with tempfile.TemporaryDirectory() as scratch:
            part(scratch)
    print(f"{checked} checkpoints verified and converted")


if __name__ == "__main__":
    if not os.path.isdir(SHARED):
        print(f"skipped: there is no {SHARED}")
        sys.exit(77)
    main()
