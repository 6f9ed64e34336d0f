# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""PyTorch reads what mgroups writes, and mgroups what PyTorch writes, bit for bit, cut differently along both axes."""

import glob
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

GRID = os.path.join(os.environ["MGROUPS_PROGRAM_DIR"], "grid")
MGROUPS = os.path.join(os.environ["MGROUPS_TOOL_DIR"], "mgroups")

# grid.cpp has the same list.
TENSORS = {
    "decoder.fc1.weight": (torch.float32, (13, 10)),
    "decoder.fc2.weight": (torch.bfloat16, (8, 12)),
    "decoder.half": (torch.float16, (7, 5, 3)),
    "decoder.ids": (torch.int64, (9,)),
    "decoder.small_ids": (torch.int32, (4, 4)),
    "decoder.bytes": (torch.uint8, (6, 50)),
    "decoder.mask": (torch.bool, (3, 11)),
    "scalar": (torch.float32, ()),
    "empty": (torch.float32, (0, 4)),
    'a key, with [odd] "signs" ü': (torch.float32, (2, 3)),
}


def expected(dtype, shape):
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64).reshape(shape)
    change = {
        torch.bfloat16: lambda i: i % 256,
        torch.float16: lambda i: i % 2048,
        torch.int64: lambda i: i + 2**40,
        torch.int32: lambda i: i - 5,
        torch.uint8: lambda i: i % 251,
        torch.bool: lambda i: i % 3 == 0,
    }
    return change.get(dtype, lambda i: i)(index).to(dtype)


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def load_whole(directory):
    """The keys whose values differ when plain tensors are loaded on one rank."""
    state = {key: torch.full(shape, 0, dtype=dtype) for key, (dtype, shape) in TENSORS.items()}
    dcp.load(state, checkpoint_id=directory)
    return [key for key, (dtype, shape) in TENSORS.items() if bits(state[key]) != bits(expected(dtype, shape))]


def placements(shape, rank_count):
    """Another cut than grid.cpp's: the last axis where there is one."""
    return [Shard(len(shape) - 1)] if shape else [Replicate()]


def on_ranks(rank, rank_count, port, action, directory):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=rank_count)
    mesh = init_device_mesh("cpu", (rank_count,))
    state = {}
    for key, (dtype, shape) in TENSORS.items():
        whole = expected(dtype, shape)
        if action == "load":
            whole = torch.zeros_like(whole)
        state[key] = distribute_tensor(whole, mesh, placements(shape, rank_count))
    if action == "save":
        dcp.save(state, checkpoint_id=directory)
    else:
        dcp.load(state, checkpoint_id=directory)
        for key, (dtype, shape) in TENSORS.items():
            assert bits(state[key].full_tensor()) == bits(expected(dtype, shape)), (rank, key)
    dist.destroy_process_group()


def spawn(rank_count, action, directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(on_ranks, args=(rank_count, port, action, directory), nprocs=rank_count)


def run(*command):
    subprocess.run(command, check=True)


def shift_one_byte(directory):
    """Moves a tensor's data by one byte within its archive, as a wrong offset would."""
    (path,) = [name for name in glob.glob(directory + "/__*_0.distcp") if expected_bytes() in open(name, "rb").read()]
    content = open(path, "rb").read()
    data = expected_bytes()
    at = content.index(data)
    content = content[:at] + data[-1:] + data[:-1] + content[at + len(data) :]
    with open(path, "wb") as file:
        file.write(content)


def expected_bytes():
    """The upper left part of decoder.bytes in a grid of 2 x 2."""
    return bits(expected(*TENSORS["decoder.bytes"])[:3, :25])


def main():
    with tempfile.TemporaryDirectory() as folder:
        for rows, columns in [(1, 1), (2, 2), (3, 1), (1, 3), (7, 1)]:
            directory = f"{folder}/ours{rows}x{columns}"
            run(GRID, "write", directory, str(rows), str(columns))
            assert load_whole(directory) == [], (rows, columns)
        ours = folder + "/ours2x2"
        spawn(1, "load", ours)
        spawn(2, "load", ours)
        print("torch reads ours")

        # Neither a test nor a load may be blind: a planted shift of one byte must show, and does.
        shifted = folder + "/shifted"
        shutil.copytree(ours, shifted)
        shift_one_byte(shifted)
        assert load_whole(shifted) == ["decoder.bytes"], load_whole(shifted)
        refused = subprocess.run([GRID, "read", shifted, "1", "1"], stderr=subprocess.PIPE)
        assert refused.returncode == 1, refused
        print("a shift of one byte shows")

        for rank_count in (1, 2):
            theirs = f"{folder}/theirs{rank_count}"
            spawn(rank_count, "save", theirs)
            for rows, columns in [(1, 1), (2, 2), (3, 1), (4, 1), (1, 7)]:
                run(GRID, "read", theirs, str(rows), str(columns))
            listing = json.loads(subprocess.check_output([MGROUPS, "inspect", theirs, "--json", "--sha256"]))
            assert listing["format"] == "dcp"
            assert set(listing["tensors"]) == set(TENSORS)
            for key, (dtype, shape) in TENSORS.items():
                entry = listing["tensors"][key]
                assert entry["dtype"] == str(dtype).removeprefix("torch."), (key, entry)
                assert entry["shape"] == list(shape), (key, entry)
                assert entry["sha256"] == hashlib.sha256(bits(expected(dtype, shape))).hexdigest(), key
        print("mgroups reads torch's")


if __name__ == "__main__":
    sys.exit(main())
