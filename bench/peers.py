# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""The real peers: PyTorch's distributed checkpoint, Megatron-Core, safetensors, and Python's pickle for `.metadata`. Each runs
in processes of its own, which are kept alive between measurements."""

import glob
import importlib
import logging
import os
import pickle
import queue
import resource
import shutil
import socket
import sys
import time
import types
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from state import RANKS, key, shape


class Peer:
    """`kind`: a class below; its method `prepare` returns the work to be timed."""

    def __init__(self, kind, ranks=RANKS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = mp.get_context("spawn")
        self.name, self.pipes, self.workers = kind.__name__, [], []
        for rank in range(ranks):
            mine, theirs = context.Pipe()
            # Not daemons: Megatron-Core starts processes of its own.
            worker = context.Process(target=serve, args=(kind, rank, ranks, port, theirs))
            worker.start()
            theirs.close()
            self.pipes.append(mine)
            self.workers.append(worker)

    def run(self, *command):
        """Seconds of the slowest rank; CPU seconds of all ranks together."""
        for pipe in self.pipes:
            pipe.send(command)
        try:
            taken = [pipe.recv() for pipe in self.pipes]
        except EOFError:
            self.close()
            raise SystemExit(f"bench: the peer {self.name} has failed at {command}") from None
        return {"seconds": max(wall for wall, _ in taken), "cpu_seconds": sum(cpu for _, cpu in taken)}

    def close(self):
        for pipe in self.pipes:
            pipe.close()
        for worker in self.workers:
            worker.join()


def cpu_seconds():
    """Of all threads of this process and of the processes that it has started and awaited."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def serve(kind, rank, ranks, port, pipe):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    peer = kind(rank, ranks)
    while True:
        try:
            command = pipe.recv()
        except EOFError:
            break
        work = peer.prepare(*command)
        dist.barrier()
        start, cpu_start = time.perf_counter(), cpu_seconds()
        work()
        dist.barrier()
        pipe.send((time.perf_counter() - start, cpu_seconds() - cpu_start))
        del work
    dist.destroy_process_group()


def remove(path):
    """Replacing an old checkpoint would time the file system's deleting, too."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


class Dcp:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self.mesh = init_device_mesh("cpu", (ranks,))

    def tensors(self, state):
        rows, columns = shape(state)
        if state.cut == "dealt":
            return {key(i): torch.rand(rows, columns) for i in range(self.rank, state.tensors, self.ranks)}
        if state.cut == "copies":
            return {key(i): torch.rand(rows, columns) for i in range(state.tensors)}
        axis = int(state.cut == "axis1")
        local = (rows, columns // self.ranks) if axis == 1 else (rows // self.ranks, columns)
        return {key(i): DTensor.from_local(torch.rand(local), self.mesh, [Shard(axis)]) for i in range(state.tensors)}

    def prepare(self, verb, path, state):
        tensors = self.tensors(state)
        if verb == "load":
            return lambda: dcp.load(tensors, checkpoint_id=path)
        if self.rank == 0:
            remove(path)
        return lambda: dcp.save(tensors, checkpoint_id=path)


class Megatron:
    """The newest version that setup_venv.sh installs, with the strategies that spread the work over all ranks."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        # As in tests/interop/megatron_test.py: without the layers of all models, and as if the CPU were a device of CUDA.
        for name in ("megatron", "megatron.core"):
            package = types.ModuleType(name)
            package.__path__ = [os.path.join(megatron_root(), *name.split("."))]
            sys.modules[name] = package
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        torch.cuda.current_device = lambda: torch.device("cpu")
        torch.cuda.synchronize = lambda *_: None
        importlib.import_module("megatron.core.parallel_state")
        importlib.import_module("megatron.core.fp8_utils")  # otherwise the first load takes seconds for it
        strategies = "megatron.core.dist_checkpointing.strategies."
        importlib.import_module(strategies + "filesystem_async")._results_queue = queue.Queue()  # otherwise a process is started for it
        self.core = importlib.import_module("megatron.core.dist_checkpointing")
        self.torch_dist = importlib.import_module(strategies + "torch")
        self.parallel = importlib.import_module(strategies + "fully_parallel")

    def prepare(self, verb, path, state):
        rows, columns = shape(state)
        tensors = {}
        for i in range(state.tensors):
            part = torch.rand(rows // self.ranks, columns)
            tensors[key(i)] = self.core.ShardedTensor.from_rank_offsets(key(i), part, (0, self.rank, self.ranks))
        if verb == "load":
            strategy = self.parallel.FullyParallelLoadStrategyWrapper(self.torch_dist.TorchDistLoadShardedStrategy())
            return lambda: self.core.load(tensors, path, sharded_strategy=strategy)
        if self.rank == 0:
            remove(path)
            os.mkdir(path)
        # One thread a rank: with more it starts processes, which the two cores have no room for.
        plain = self.torch_dist.TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1)
        strategy = self.parallel.FullyParallelSaveStrategyWrapper(plain)
        return lambda: self.core.save(tensors, path, sharded_strategy=strategy)


def megatron_root():
    return max(glob.glob(sys.prefix + "/megatron-core-*"), key=lambda path: [int(part) for part in path.rsplit("-", 1)[1].split(".")])


class Safetensors:
    """One process, one file."""

    def __init__(self, rank, ranks):
        assert ranks == 1, rank

    def prepare(self, verb, path, state):
        tensors = {key(i): torch.rand(shape(state)) for i in range(state.tensors)}

        def save():
            save_file(tensors, path)
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

        def load():
            # What it returns are views of a mapped file, which cost nothing until they are read.
            for name, value in load_file(path).items():
                tensors[name].copy_(value)

        if verb == "save":
            remove(path)
        return save if verb == "save" else load


class Pickle:
    """A checkpoint's `.metadata` as the object of torch that it is. What was loaded last is dumped."""

    def __init__(self, rank, ranks):
        assert ranks == 1, rank
        self.metadata = None

    def prepare(self, verb, path):
        if verb == "dumps":
            return lambda: pickle.dumps(self.metadata)
        self.metadata = None
        with open(path, "rb") as file:
            content = file.read()

        def loads():
            self.metadata = pickle.loads(content)

        return loads
