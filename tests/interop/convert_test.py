# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""What `mgroups convert` writes, as PyTorch and safetensors read it; what they write, as it converts it."""

import argparse
import json
import os
import socket
import subprocess
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

MGROUPS = os.path.join(os.environ["MGROUPS_TOOL_DIR"], "mgroups")


def run(*arguments):
    done = subprocess.run([MGROUPS, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def numbered(shape, dtype):
    count = int(torch.tensor(shape).prod()) if shape else 1
    return torch.arange(count).reshape(shape).to(dtype)


MODEL = {
    "embed.weight": numbered((7, 5), torch.bfloat16),
    "layers.0.w": numbered((3, 4, 2), torch.float32),
    "layers.0.mask": numbered((9,), torch.int64) % 2 == 0,
    "layers.1.w": numbered((5, 3), torch.float16).t(),
    "scale": torch.tensor(3.5, dtype=torch.float64),
    "none": torch.empty((0, 3), dtype=torch.int32),
    "fp8": numbered((6,), torch.float32).to(torch.float8_e4m3fn),
    "u16": numbered((4,), torch.int32).to(torch.uint16),
}
NESTED = {
    "model": {"w": numbered((3, 2), torch.float32), "b": numbered((3,), torch.bfloat16)},
    "optimizer": {
        "state": {0: {"step": torch.tensor(7.0), "exp_avg": numbered((3, 2), torch.float32)}},
        "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "params": [0, 1], "name": "ü", "fused": None, "maximize": False}],
    },
    "steps": [1, 2, 3],
    "large": 2**63 + 5,
    "raw": b"\x00\x80\xff",
    "empty": [],
}


def blank(value):
    """The same structure with other values, to be loaded into."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(element) for key, element in value.items()}
    if isinstance(value, list) and any(isinstance(element, (dict, torch.Tensor)) for element in value):
        return [blank(element) for element in value]
    return type(value)() if value is not None else None


def check_safetensors(scratch):
    source, checkpoint, one, many = (os.path.join(scratch, name) for name in ("in.safetensors", "dcp", "out.safetensors", "many"))
    contiguous = {key: value.contiguous() for key, value in MODEL.items()}
    save_file(contiguous, source, {"format": "pt", "note": "kept"})
    run("convert", source, checkpoint, "--to", "dcp")
    state = {key: torch.zeros_like(value) for key, value in contiguous.items()}
    dcp.load(state, checkpoint_id=checkpoint, no_dist=True)
    assert same(state, contiguous)

    run("convert", checkpoint, one, "--to", "safetensors")
    assert same(load_file(one), contiguous)
    run("convert", checkpoint, many, "--to", "safetensors", "--max-file-size", "64")
    # As transformers loads a sharded model: the index names a file for each tensor.
    with open(os.path.join(many, "model.safetensors.index.json")) as file:
        index = json.load(file)
    found = {}
    for key, name in index["weight_map"].items():
        with safe_open(os.path.join(many, name), framework="pt") as shard:
            assert shard.metadata()["format"] == "pt"  # what transformers insists on
            found[key] = shard.get_tensor(key)
    assert same(found, contiguous) and len(set(index["weight_map"].values())) > 2
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in contiguous.values())
    run("convert", source, one, "--to", "safetensors")
    with safe_open(one, framework="pt") as again:
        assert again.metadata() == {"format": "pt", "note": "kept"}


def check_nested(scratch):
    source, again, megatron, back = (os.path.join(scratch, name) for name in ("torch", "dcp", "torch_dist", "back"))
    dcp.save(NESTED, checkpoint_id=source, no_dist=True)
    run("convert", source, again, "--to", "dcp")
    run("convert", source, megatron, "--to", "torch_dist")
    run("convert", megatron, back, "--to", "dcp")
    for path in (again, back):
        state = blank(NESTED)
        dcp.load(state, checkpoint_id=path, no_dist=True)
        assert same(state, NESTED), (path, state)
        # An int key of a mapping is a string on disk, for everybody.
        whole = os.path.join(scratch, "whole.pt")
        dcp_to_torch_save(path, whole)
        loaded = torch.load(whole, weights_only=False)
        assert same(loaded["optimizer"]["param_groups"][0], NESTED["optimizer"]["param_groups"][0]), loaded
        assert same(loaded["steps"], NESTED["steps"]) and same(loaded["raw"], NESTED["raw"])
    common = torch.load(os.path.join(megatron, "common.pt"), weights_only=True)
    assert same(common["large"], NESTED["large"]) and same(common["raw"], NESTED["raw"]) and common["empty"] == []
    assert same(common["optimizer"]["param_groups"][0]["betas"], (0.9, 0.95)), common


def check_saved_over(scratch):
    """PyTorch saves into a directory of ours: our checksums are of the past, and are not held against it."""
    source, path = os.path.join(scratch, "in.safetensors"), os.path.join(scratch, "ours")
    save_file({"w": numbered((4, 4), torch.float32)}, source)
    run("convert", source, path, "--to", "dcp")
    assert os.path.exists(os.path.join(path, "mgroups_checksums.txt"))
    newer = {"w": -numbered((4, 4), torch.float32)}
    dcp.save(newer, checkpoint_id=path, no_dist=True)
    assert "belongs to an earlier save" in run("verify", path)
    out = os.path.join(scratch, "out.safetensors")
    run("convert", path, out, "--to", "safetensors")
    assert same(load_file(out), newer)


def save_without_collectives(rank, path, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    weight = distribute_tensor(numbered((5, 3), torch.float32), init_device_mesh("cpu", (2,)), [Shard(0)])
    dcp.save({"w": weight, "r": numbered((4,), torch.int64), "o": {"step": 3}}, checkpoint_id=path, use_collectives=False)
    dist.barrier()
    dist.destroy_process_group()


def check_rank_metadata(scratch):
    """Saved without collectives: every rank's own .metadata, which together are one."""
    path, out = os.path.join(scratch, "ranks"), os.path.join(scratch, "out.safetensors")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(save_without_collectives, (path, port), nprocs=2)
    assert not os.path.exists(os.path.join(path, ".metadata"))
    assert "is whole" in run("verify", path)
    run("convert", path, out, "--to", "safetensors", "--drop-objects")
    assert same(load_file(out), {"w": numbered((5, 3), torch.float32), "r": numbered((4,), torch.int64)})
    os.remove(os.path.join(path, "__1.metadata"))
    done = subprocess.run([MGROUPS, "verify", path], capture_output=True, text=True)
    assert done.returncode == 1 and "no stored chunk holds [3:5, 0:3]" in done.stdout, done.stdout


def check_instances(scratch):
    """An instance of a class, written from its parts, is what Python makes of it."""
    path = os.path.join(scratch, "dcp")
    run("convert", os.path.join(os.environ["MGROUPS_SHARED_DIR"], "fixtures", "mcoreHEAD_torch2.14"), path, "--to", "dcp")
    state = {"args": argparse.Namespace(), "iteration": 0}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    assert state == {"args": argparse.Namespace(foo=1, bar="x"), "iteration": 123}, state


if __name__ == "__main__":
    for check in (check_safetensors, check_nested, check_saved_over, check_rank_metadata, check_instances):
        with tempfile.TemporaryDirectory() as scratch:
            check(scratch)
    print("converted both ways, bit for bit")
