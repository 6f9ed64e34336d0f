# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""`mgroups inspect` against real checkpoints of the shared fixtures and cases: expected values come from the libraries that wrote them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

MGROUPS = os.path.join(os.environ["MGROUPS_TOOL_DIR"], "mgroups")
SHARED = os.environ["MGROUPS_SHARED_DIR"]


def inspect(path):
    done = subprocess.run([MGROUPS, "inspect", path, "--json", "--sha256"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def with_links(folder, scratch):
    """A copy in which files that only hold a path, which some ways of copying make of links, are links again."""
    copy = os.path.join(scratch, os.path.basename(folder))
    shutil.copytree(folder, copy, symlinks=True)
    for parent, _, names in os.walk(copy):
        os.chmod(parent, 0o755)
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                target = file.read(200)
            if target.startswith(b"../") and os.path.exists(os.path.join(parent.encode(), target)):
                os.remove(path)
                os.symlink(target, path.encode())
    return copy


def values(tensors):
    return {key: (entry["dtype"], entry["shape"], entry["sha256"]) for key, entry in tensors.items()}


def check_equal(name, path, expected):
    status, out, err = inspect(path)
    if status != 0:
        return f"{name}: exit status {status}: {err.strip()}"
    found = json.loads(out)
    if values(found["tensors"]) != values(expected["tensors"]):
        return f"{name}: tensors differ: {sorted(found['tensors'])} are not {sorted(expected['tensors'])}, or their values"
    if sorted(found["objects"]) != sorted(expected.get("objects", found["objects"])):
        return f"{name}: objects {found['objects']} are not {expected['objects']}"


def check_refused(name, path):
    status, out, err = inspect(path)
    if status != 1 or not err.startswith("mgroups: ") or len(err.strip().splitlines()) != 1:
        return f"{name}: should be refused in one sentence, but: exit status {status}: {err.strip() or out[:200]}"


def main(scratch):
    faults, checked = [], 0
    fixtures = os.path.join(SHARED, "fixtures")
    with open(os.path.join(fixtures, "expected.json")) as file:
        expected = json.load(file)
    with open(os.path.join(fixtures, "mcore_distopt_expected.json")) as file:
        expected |= {k: v for k, v in json.load(file).items() if isinstance(v, dict) and "tensors" in v}
    for name, content in sorted(expected.items()):
        faults.append(check_equal(name, os.path.join(fixtures, name), content))
        checked += 1
    faults.append(check_refused("torch2.14_distcp_safetensors_BROKEN", os.path.join(fixtures, "torch2.14_distcp_safetensors_BROKEN")))
    with open(os.path.join(SHARED, "cases", "cases.json")) as file:
        cases = json.load(file)
    for case in cases:
        if case["command"] is None:
            continue
        folder = with_links(os.path.join(SHARED, "cases", case["input"]), scratch)
        path = case["command"].split()[2].replace("{input}", folder)
        if "refuse" in case["expect"]:
            faults.append(check_refused(case["id"], path))
        else:
            faults.append(check_equal(case["id"], path, case["expect"]))
        checked += 1
    faults = [fault for fault in faults if fault]
    print("\n".join(faults) or f"{checked} checkpoints are as their writers say")
    return 1 if faults else 0


if __name__ == "__main__":
    if not os.path.isdir(SHARED):
        print(f"skipped: there is no {SHARED}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(scratch))
