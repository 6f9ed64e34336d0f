# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Runs ours, a real peer and the machine's limit in turn, and prints the medians as one table. Started by run.sh."""

import argparse
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

PROGRAMS = os.environ["MGROUPS_TOOL_DIR"]
RANKS = 2
MIB = 1 << 20


def program(name, *arguments):
    done = subprocess.run([os.path.join(PROGRAMS, "bench_" + name), *map(str, arguments)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def seconds(name, *arguments):
    return program(name, *arguments)["seconds"]


class DcpPeer:
    """Two gloo ranks with PyTorch's distributed checkpoint, kept alive between measurements."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = mp.get_context("spawn")
        self.pipes, self.workers = [], []
        for rank in range(RANKS):
            mine, theirs = context.Pipe()
            worker = context.Process(target=dcp_worker, args=(rank, port, theirs), daemon=True)
            worker.start()
            self.pipes.append(mine)
            self.workers.append(worker)

    def run(self, *command):
        for pipe in self.pipes:
            pipe.send(command)
        return max(pipe.recv() for pipe in self.pipes)

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)
        for worker in self.workers:
            worker.join()


def dcp_worker(rank, port, pipe):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    while (command := pipe.recv()) is not None:
        verb, directory, tensors, size = command
        rows = size // 64
        if size >= MIB:
            local = {f"layer.{i}.weight": torch.rand(rows // RANKS, 16) for i in range(tensors)}
            state = {key: DTensor.from_local(value, mesh, [Shard(0)]) for key, value in local.items()}
        else:
            state = {f"layer.{i}.weight": torch.rand(rows, 16) for i in range(rank, tensors, RANKS)}
        dist.barrier()
        start = time.perf_counter()
        if verb == "save":
            dcp.save(state, checkpoint_id=directory)
        else:
            dcp.load(state, checkpoint_id=directory)
        dist.barrier()
        pipe.send(time.perf_counter() - start)
    dist.destroy_process_group()


def safetensors_seconds(verb, path, tensors, size):
    if verb == "save":
        state = {f"layer.{i}.weight": torch.rand(size // 64, 16) for i in range(tensors)}
        start = time.perf_counter()
        save_file(state, path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    else:
        start = time.perf_counter()
        # A view of a mapped file costs nothing until it is read.
        state = {key: value.clone() for key, value in load_file(path).items()}
    return time.perf_counter() - start


class Table:
    def __init__(self):
        self.rows = []

    def add(self, work, contestants, repeats, unit="s"):
        """`contestants`: name -> function that returns seconds. Each round runs all of them once."""
        taken = {name: [] for name in contestants}
        for _ in range(repeats):
            for name, run in contestants.items():
                taken[name].append(run())
        row = {"work": work, "unit": unit, "samples": taken} | {name: statistics.median(values) for name, values in taken.items()}
        self.rows.append(row)
        print(self.line(row), flush=True)
        return row

    @staticmethod
    def head():
        return f"{'work':52} {'ours':>9} {'peer':>9} {'limit':>9} {'ours/peer':>9} {'ours/limit':>10}"

    @staticmethod
    def line(row):
        def number(value):
            return f"{value:9.4f}" if value is not None else f"{'-':>9}"

        ours, peer, limit = row["ours"], row.get("peer"), row.get("limit")
        # As speeds: above 1 is faster than the other.
        ratio = lambda other: f"{other / ours:9.2f}" if other is not None else f"{'-':>9}"
        return f"{row['work']:52} {number(ours)} {number(peer)} {number(limit)} {ratio(peer)} {ratio(limit):>10}"


def checkpoint_rows(table, peer, folder, where, repeats):
    tensors, size = 32, 32 * MIB
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    for verb in ("save", "load"):
        raw = "raw-write" if verb == "save" else "raw-read"
        table.add(
            f"{verb} 1 GiB in 32 tensors, {RANKS} ranks, {where}",
            {
                "limit": lambda: seconds("checkpoint", raw, folder, RANKS, tensors, size),
                "ours": lambda: seconds("checkpoint", verb, ours, RANKS, tensors, size),
                "peer": lambda: peer.run(verb, theirs, tensors, size),
            },
            repeats,
        )
    table.add(
        f"stage 1 GiB for an asynchronous save, {RANKS} ranks, {where}",
        {
            "limit": lambda: seconds("checkpoint", "memcpy", folder, RANKS, tensors, size),
            "ours": lambda: seconds("checkpoint", "stage", ours, RANKS, tensors, size),
        },
        repeats,
    )
    shutil.rmtree(ours), shutil.rmtree(theirs)


def small_rows(table, peer, folder, where, repeats, tensors, with_peers):
    size = 16 << 10
    ours, theirs, flat = (os.path.join(folder, name) for name in ("ours", "theirs", "flat.safetensors"))
    for verb in ("save", "load"):
        raw = "raw-write" if verb == "save" else "raw-read"
        contestants = {
            "limit": lambda: seconds("checkpoint", raw, folder, RANKS, tensors, size),
            "ours": lambda: seconds("checkpoint", verb, ours, RANKS, tensors, size),
        }
        row = table.add(f"{verb} {tensors} x 16 KiB, {where}" + (" (peer: DCP)" if with_peers else ""),
                        contestants | ({"peer": lambda: peer.run(verb, theirs, tensors, size)} if with_peers else {}), repeats)
        print(f"    each tensor {1e6 * (row['ours'] - row['limit']) / tensors:.2f} us beyond the raw {raw[4:]}")
        if with_peers:
            table.add(f"{verb} {tensors} x 16 KiB, {where} (peer: safetensors)",
                      contestants | {"peer": lambda: safetensors_seconds(verb, flat, tensors, size)}, repeats)
    for path in (ours, theirs):
        shutil.rmtree(path, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each measurement (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")
    parser.add_argument("--disk", metavar="DIRECTORY", default="build", help="where the disk is measured (default build)")
    parser.add_argument("--only", metavar="WORD", default="", help="only parts whose name holds it: checkpoint, small, plan, all_gather")
    options = parser.parse_args()
    table = Table()
    print(Table.head())
    wanted = lambda part: options.only in part
    peer = DcpPeer() if wanted("checkpoint") or wanted("small") else None
    for where, parent in (("disk", options.disk), ("tmpfs", "/dev/shm")):
        if peer is None or not os.access(parent, os.W_OK):
            continue
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as folder:
            if wanted("checkpoint"):
                checkpoint_rows(table, peer, folder, where, options.repeats)
            if wanted("small"):
                small_rows(table, peer, folder, where, min(options.repeats, 3), 20000, with_peers=where == "tmpfs")
    if peer is not None:
        peer.close()
    if wanted("plan"):
        plans = {ranks: table.add(f"plan 1000 tensors x {ranks} simulated ranks",
                                  {"ours": lambda: seconds("plan", 1000, ranks)}, options.repeats)["ours"] for ranks in (1024, 4096)}
        print(f"    exponent {math.log(plans[4096] / plans[1024]) / math.log(4):.2f}")
    if wanted("all_gather"):
        for ranks in (2, 4):
            table.add(f"all_gather of 64 MiB on {ranks} threads",
                      {"limit": lambda: seconds("all_gather", "memcpy", ranks, 64 * MIB),
                       "ours": lambda: seconds("all_gather", "ours", ranks, 64 * MIB)}, options.repeats)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(table.rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
