# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Megatron-Core reads what mgroups writes, and mgroups what Megatron-Core writes, cut for other numbers of tensor-parallel
and pipeline-parallel ranks: tensors bit for bit, objects and the common state value for value."""

import argparse
import collections
import functools
import glob
import hashlib
import importlib
import inspect
import io
import json
import logging
import os
import pathlib
import pickle
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import types
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint  # here, so that it is there in every rank
import torch.multiprocessing as mp

PROGRAM = os.path.join(os.environ["MGROUPS_PROGRAM_DIR"], "megatron")
MGROUPS = os.path.join(os.environ["MGROUPS_TOOL_DIR"], "mgroups")

# Parallel sizes; ranks count tp first, then dp, then pp.
Layout = collections.namedtuple("Layout", "tp pp dp")
LAYOUTS = [Layout(*sizes) for sizes in [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (2, 2, 1), (2, 1, 2), (4, 2, 1)]]
LAYERS = 4

# Dtype and global shape. megatron.cpp has the same list.
TENSORS = {
    "embedding.word_embeddings.weight": (torch.float32, (24, 6)),
    "decoder.layers.input_layernorm.weight": (torch.float32, (LAYERS, 6)),
    "decoder.layers.self_attention.linear_qkv.weight": (torch.bfloat16, (LAYERS, 24, 6)),
    "decoder.layers.mlp.linear_fc1.weight": (torch.float32, (LAYERS, 16, 5)),
    "decoder.layers.mlp.linear_fc2.weight": (torch.float16, (LAYERS, 6, 8)),
    "decoder.layers.mlp.experts.weight": (torch.int64, (LAYERS, 4, 3, 2)),
    "decoder.final_layernorm.weight": (torch.float64, (6,)),
    "decoder.quantized": (torch.float8_e4m3fn, (8, 4)),
    "scalar": (torch.float32, ()),
    "step": (torch.int64, ()),
    "mask": (torch.bool, (5, 3)),
    "bucket": (torch.int32, (23,)),
    "uneven": (torch.uint8, (7, 9)),
}
PADDED_ROWS = (32, 12)
STRIDED = {"embedding.word_embeddings.weight", "mask"}
PARAMETERS = {"decoder.layers.mlp.linear_fc1.weight", "decoder.final_layernorm.weight"}


class Preference:
    """A class that mgroups cannot know."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return isinstance(other, Preference) and self.text == other.text


# ---- What the state holds


def expected(key):
    dtype, shape = TENSORS[key]
    index = torch.arange(torch.Size(shape).numel(), dtype=torch.int64).reshape(shape) + 1000 * list(TENSORS).index(key)
    change = {
        torch.bfloat16: lambda i: i % 256,
        torch.float16: lambda i: i % 2048,
        torch.float64: lambda i: i + 0.5,
        torch.int64: lambda i: i + 2**40,
        torch.int32: lambda i: i - 5,
        torch.uint8: lambda i: i % 251,
        torch.bool: lambda i: i % 3 == 0,
    }
    if dtype == torch.float8_e4m3fn:
        return (index % 120).to(torch.uint8).view(dtype)
    return change.get(dtype, lambda i: i)(index).to(dtype)


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def split(size, parts, index):
    base, extra = divmod(size, parts)
    begin = index * base + min(index, extra)
    return begin, begin + base + (index < extra)


def rng_state(pp, tp):
    return {
        "piece": f"{pp}.{tp}",
        "python": (3, (1, -2, 2**40 + tp, 2**63 + pp), None),
        "seed": bytes(range(256)),
        "torch": torch.arange(100, dtype=torch.uint8) + 10 * pp + tp,
        "gauss": 0.1 + tp,
        "flags": [True, False],
        "empty": ([], {}, (), b"", ""),
        7: "text: ü € 𝄞",
    }


def extra_state(layer):
    return torch.full((3, 2), layer, dtype=torch.float32) if layer % 2 == 0 else None


def param_groups():
    betas = (0.9, 0.95)
    return [{"lr": 3e-4, "betas": betas, "params": [0, 1, 2]}, {"lr": float("inf"), "betas": betas, "params": []}]


def small_tensors():
    """Of all kinds of strides and storages."""
    whole = torch.arange(24, dtype=torch.int16).reshape(4, 6)
    number = torch.tensor(2.5, dtype=torch.float64)
    half = torch.tensor([1, -2, 3], dtype=torch.bfloat16)
    complex_ = torch.tensor([1 - 2j], dtype=torch.complex64)
    views = [whole, whole.t(), whole[1:3, 2:], whole[0]]
    return [number, torch.empty(0, 3), half, complex_, *views, torch.tensor([True, False])]


def arguments(layout):
    return {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "world_size": layout.tp * layout.pp * layout.dp,
        "params_dtype": torch.bfloat16,
        "data_path": None,
        "split": [[0.9, 0.05], [0.05]],
    }


CONTENT = {"distrib_optim_sharding_type": "fully_reshardable", "singleton_local_shards": False}


def common_state(layout):
    return {
        "args": argparse.Namespace(**arguments(layout)),
        "iteration": 123,
        "checkpoint_version": 3.0,
        "num_floating_point_operations_so_far": 2**62 + 1,
        "opt_param_scheduler": {"max_lr": 1e-4, "warmup": None, "schedule": ["cosine", [1, [2, [3.5, None]]]]},
        "numbers": [-(2**63), 2**63 - 1, 2**64 - 1]
        + [sign * 2**power + step for power in (8, 16, 31, 32) for sign in (-1, 1) for step in (-1, 0)],
        "long": list(range(2500)),
        "wide": {str(i): None for i in range(1500)},
        "text": "x" * 70000,
        "table": torch.arange(6, dtype=torch.int64).reshape(2, 3),
    }


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.layout != torch.strided or b.layout != torch.strided:
            return a.layout == b.layout and torch.equal(a.to_dense(), b.to_dense())
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and numpy.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, argparse.Namespace):
        return same(vars(a), vars(b))
    if isinstance(a, io.BytesIO):
        return a.getvalue() == b.getvalue()
    return a == b


# ---- Megatron-Core on CPUs


def import_megatron(root):
    """Its dist_checkpointing without the __init__ of megatron.core, which would import the layers of all models and with
    them Triton; and as if the CPU were a device of CUDA."""
    for name in ("megatron", "megatron.core"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split("."))]
        sys.modules[name] = package
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    # What megatron.core.__init__ allows torch.load to make, of that which is used here, and the test's own class.
    numpy_array = [numpy._core.multiarray._reconstruct, numpy.ndarray, numpy.dtype, numpy.dtypes.UInt32DType]
    torch.serialization.add_safe_globals([argparse.Namespace, io.BytesIO, pathlib.PosixPath, *numpy_array, Preference])
    importlib.import_module("megatron.core.parallel_state")
    importlib.import_module("megatron.core.fp8_utils")  # here, since otherwise each rank's first load takes seconds for it
    filesystem_async = importlib.import_module("megatron.core.dist_checkpointing.strategies.filesystem_async")
    filesystem_async._results_queue = queue.Queue()  # otherwise a process is started for it


class Rank:
    """One rank's share of everything, as Megatron-Core is told of it."""

    def __init__(self, layout, rank):
        self.layout = layout
        self.rank = rank
        self.tp = rank % layout.tp
        self.dp = rank // layout.tp % layout.dp
        self.pp = rank // (layout.tp * layout.dp)

    def grid(self, key, *cuts, replica=0, prepended=0):
        """A part of a regular grid."""
        from megatron.core.dist_checkpointing import ShardedTensor

        part = expected(key)
        for axis, index, parts in cuts:
            part = part.chunk(parts, axis)[index]
        part = part.reshape(part.shape[prepended:]).clone()
        if key in STRIDED:
            part = part.t().contiguous().t()
        elif key in PARAMETERS:
            part = torch.nn.Parameter(part)
        return ShardedTensor.from_rank_offsets(key, part, *cuts, replica_id=replica, prepend_axis_num=prepended)

    def anywhere(self, key, *ranges, replica=0):
        """Any part, for uneven cuts."""
        from megatron.core.dist_checkpointing import ShardedTensor

        whole = expected(key)
        part = whole[tuple(slice(*bounds) for bounds in ranges)].clone()
        begin = tuple(bounds[0] for bounds in ranges)
        return ShardedTensor(
            key, part, part.dtype, tuple(part.shape), tuple(whole.shape), begin, axis_fragmentations=None, replica_id=replica
        )

    def tensors(self):
        tp, pp, dp = self.layout
        first, last = self.pp == 0, self.pp == pp - 1
        layers = range(LAYERS // pp * self.pp, LAYERS // pp * (self.pp + 1))
        experts = range(4 // tp * self.tp, 4 // tp * (self.tp + 1))
        grid = self.grid
        out = []
        if first or last:  # tied to the output layer
            out.append(grid("embedding.word_embeddings.weight", (0, self.tp, tp), replica=(0 if first else 1, 0, self.dp)))
        for layer in layers:
            at = (0, layer, LAYERS)
            name = "decoder.layers."
            out.append(grid(name + "input_layernorm.weight", at, replica=(0, self.tp, self.dp), prepended=1))
            cut, copy = (1, self.tp, tp), (0, 0, self.dp)
            out.append(grid(name + "self_attention.linear_qkv.weight", at, cut, replica=copy, prepended=1))
            for half in (0, 1):  # of a gated layer
                cut = (1, half * tp + self.tp, 2 * tp)
                out.append(grid(name + "mlp.linear_fc1.weight", at, cut, replica=copy, prepended=1))
            out.append(grid(name + "mlp.linear_fc2.weight", at, (2, self.tp, tp), replica=copy, prepended=1))
            for expert in experts:
                out.append(grid(name + "mlp.experts.weight", at, (1, expert, 4), replica=copy, prepended=2))
        if last:
            out.append(grid("decoder.final_layernorm.weight", replica=(0, self.tp, self.dp)))
        out.append(grid("decoder.quantized", (0, self.tp, tp), replica=(self.pp, 0, self.dp)))
        for key in ("scalar", "step", "mask"):
            out.append(grid(key, replica=self.rank))
        stage = self.pp * tp + self.tp
        out.append(self.anywhere("bucket", split(23, tp * pp, stage), replica=self.dp))
        out.append(self.anywhere("uneven", split(7, tp, self.tp), split(9, pp, self.pp), replica=self.dp))
        return out

    def objects(self, saved):
        """Objects have the pieces that they were saved in; other ranks than those share them in turn."""
        from megatron.core.dist_checkpointing.mapping import ShardedObject

        out = []
        if saved == self.layout:
            pieces = [(self.pp, self.tp, self.dp)]
        else:
            ranks = self.layout.tp * self.layout.pp * self.layout.dp
            pieces = [(i // saved.tp, i % saved.tp, 0) for i in range(self.rank, saved.tp * saved.pp, ranks)]
        for pp, tp, replica in pieces:
            out.append(ShardedObject("rng_state", rng_state(pp, tp), (saved.pp, saved.tp), (pp, tp), replica))
        stages = self.layout.pp
        for layer in range(LAYERS // stages * self.pp, LAYERS // stages * (self.pp + 1)):
            key = "decoder.layers.self_attention._extra_state"
            out.append(ShardedObject(key, extra_state(layer), (LAYERS,), (layer,), (0, self.tp, self.dp)))
        out.append(ShardedObject("optimizer.param_groups", param_groups(), (1,), (0,), self.rank))
        out.append(ShardedObject("optimizer.small_tensors", small_tensors(), (1,), (0,), self.rank))
        return out


def foreign_objects(rank):
    """What mgroups cannot take apart or put together, and so has to keep as it is."""
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    values = {
        "class": Preference("of a user"),
        "array": numpy.random.RandomState(1).get_state(),
        "namespace": argparse.Namespace(a=1, b=argparse.Namespace(c=[2])),
        "file": io.BytesIO(b"quantizer"),
        "number": 2**200,
        "set": {1, 2, 3},
        "path": pathlib.PosixPath("/a/b"),
        "ordered": collections.OrderedDict(a=1),
        "default": collections.defaultdict(list, a=[1]),
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "sparse": torch.eye(3).to_sparse(),
        "bytearray": bytearray(b"abc"),
        "generator": torch.Generator().get_state(),
        "nested": functools.reduce(lambda value, _: [value], range(300), None),
    }
    return [ShardedObject("foreign", list(values.items())[i], (len(values),), (i,), rank) for i in range(len(values))]


NOT_UNDERSTOOD = ("does not fit into 64 bits", "nested deeper", "_rebuild_sparse_tensor")


def save_strategy(layout):
    """Which ranks write what, and into which files."""
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    if layout.dp > 1:
        return FullyParallelSaveStrategyWrapper(TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=1))
    if layout.pp > 1:
        return TorchDistSaveShardedStrategy("torch_dist", 1, thread_count=4, separation_hint="decoder.layers")
    return None


def save(directory, layout, rank, foreign=False):
    from megatron.core import dist_checkpointing

    share = Rank(layout, rank)
    state = {"tensors": share.tensors(), "objects": share.objects(layout), **common_state(layout)}
    if foreign:
        state["foreign"] = foreign_objects(rank)
        state["preference"] = Preference("in the common state")
    if rank == 0:
        os.mkdir(directory)
    dist.barrier()
    options = {"content_metadata": CONTENT, "sharded_strategy": save_strategy(layout)}
    if "verify_integrity" in inspect.signature(dist_checkpointing.save).parameters:
        options["verify_integrity"] = True
    dist_checkpointing.save(state, directory, **options)


def differences(directory, layout, rank, saved, strict, common, foreign=False):
    """The keys whose values differ when Megatron-Core loads a checkpoint that `saved` ranks saved."""
    from megatron.core import dist_checkpointing

    share = Rank(layout, rank)
    truth = {"tensors": share.tensors(), "objects": share.objects(saved)}
    if foreign:
        truth["foreign"] = foreign_objects(rank)
    state = {}
    for name, part in truth.items():
        state[name] = [item.without_data() for item in part]
    for item in state["tensors"]:
        data = torch.full(item.local_shape, 0x55, dtype=torch.uint8)
        item.data = data.bool() if item.dtype == torch.bool else data.to(item.dtype)
    loaded = dist_checkpointing.load(state, directory, **({"strict": strict} if strict else {}))
    wrong = []
    for name, part in truth.items():
        values = loaded.pop(name)
        assert len(values) == len(part), (name, len(values))
        for item, value in zip(part, values):
            if not same(value, item.data):
                wrong.append(item.key)
    if not same(loaded, common):
        wrong += sorted(key for key in {*loaded, *common} if not same(loaded.get(key), common.get(key))) or ["order"]
    return wrong


def check_padded(layout, rank, directory):
    """Loads a vocabulary of another size, padded or cut off."""
    from megatron.core import dist_checkpointing

    key = "embedding.word_embeddings.weight"
    for rows in PADDED_ROWS:
        truth = torch.zeros(rows, 6)
        truth[:24] = expected(key)[:rows]
        target = torch.full((rows // layout.tp, 6), 7.0)
        item = dist_checkpointing.ShardedTensor.from_rank_offsets(
            key, target, (0, rank % layout.tp, layout.tp), replica_id=rank // layout.tp, allow_shape_mismatch=True
        )
        loaded = dist_checkpointing.load({"it": item}, directory)["it"]
        assert bits(loaded) == bits(truth.chunk(layout.tp)[rank % layout.tp]), (rows, loaded)


def ours_common(layout):
    """megatron.cpp has the same. Arguments are a dict: it writes no instances of classes."""
    return {**common_state(layout), "args": arguments(layout), "content_metadata": CONTENT}


def check_functions(directory, saved, common):
    """The functions that look into a checkpoint without a state dict."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.serialization import load_content_metadata, load_sharded_metadata

    assert dist_checkpointing.check_is_distributed_checkpoint(directory)
    assert same(dist_checkpointing.load_common_state_dict(directory), common)
    assert load_content_metadata(directory) == CONTENT
    listed = dist_checkpointing.load_tensors_metadata(directory)
    assert set(listed) == set(TENSORS), set(listed) ^ set(TENSORS)
    for key, (dtype, shape) in TENSORS.items():
        assert (listed[key].dtype, listed[key].global_shape) == (dtype, shape), listed[key]
    objects = {key for key, item in load_sharded_metadata(directory).items() if key not in TENSORS}
    rng = {f"rng_state/shard_{pp}.{tp}_{saved.pp}.{saved.tp}" for pp in range(saved.pp) for tp in range(saved.tp)}
    extra = {f"decoder.layers.self_attention._extra_state/shard_{i}_{LAYERS}" for i in range(LAYERS)}
    assert objects == {*rng, *extra, "optimizer.param_groups/shard_0_1", "optimizer.small_tensors/shard_0_1"}, objects
    plain = dist_checkpointing.load_plain_tensors(directory)
    for key in TENSORS:
        assert bits(plain[key]) == bits(expected(key)), key


# ---- Ranks


def on_rank(rank, layout, port, action, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=layout.tp * layout.pp * layout.dp)
    action(layout, rank, *arguments)
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(layout, action, *arguments):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    count = layout.tp * layout.pp * layout.dp
    mp.start_processes(on_rank, args=(layout, port, action, arguments), nprocs=count, start_method="fork")


def directory_of(prefix, layout):
    return f"{prefix}-tp{layout.tp}-pp{layout.pp}-dp{layout.dp}"


def sizes(*layouts):
    return [str(size) for layout in layouts for size in layout]


def run(*command):
    subprocess.run(command, check=True)


def load_ours_and_save(layout, rank, folder, theirs):
    """Loads what mgroups saved under its own and other layouts, and saves the same."""
    from megatron.core.dist_checkpointing.validation import StrictHandling

    at = LAYOUTS.index(layout)
    for step, strict in ((1, StrictHandling.RAISE_ALL), (3, None), (5, StrictHandling.RAISE_ALL)):
        saved = LAYOUTS[(at + step) % len(LAYOUTS)]
        wrong = differences(directory_of(folder + "/ours", saved), layout, rank, saved, strict, ours_common(saved))
        assert wrong == [], (layout, rank, saved, wrong)
    check_padded(layout, rank, directory_of(folder + "/ours", LAYOUTS[at - 1]))
    save(directory_of(theirs, layout), layout, rank)
    if layout.tp * layout.pp * layout.dp == 1:
        check_functions(directory_of(folder + "/ours", LAYOUTS[4]), LAYOUTS[4], ours_common(LAYOUTS[4]))


def save_foreign(layout, rank, directory):
    save(directory, layout, rank, foreign=True)


def load_copy(layout, rank, directory, saved):
    from megatron.core.dist_checkpointing.validation import StrictHandling

    common = {**common_state(saved), "preference": Preference("in the common state"), "content_metadata": CONTENT}
    wrong = differences(directory, layout, rank, saved, StrictHandling.RAISE_ALL, common, foreign=True)
    assert wrong == [], wrong


def load_faulty(layout, rank, directory, saved, common, keys):
    """Neither a test nor a load may be blind."""
    wrong = differences(directory, layout, rank, saved, None, common)
    assert set(wrong) == keys, (wrong, keys)


# ---- Files


def read_metadata(directory):
    with open(directory + "/.metadata", "rb") as file:
        return pickle.load(file)


def object_bytes(directory):
    """The stored bytes of all objects, the common state's among them."""
    metadata = read_metadata(directory)
    out = {}
    for index, info in metadata.storage_data.items():
        if isinstance(metadata.state_dict_metadata[index.fqn], torch.distributed.checkpoint.metadata.BytesStorageMetadata):
            with open(f"{directory}/{info.relative_path}", "rb") as file:
                file.seek(info.offset)
                out[index.fqn] = file.read(info.length)
    if os.path.exists(directory + "/common.pt"):
        with open(directory + "/common.pt", "rb") as file:
            out["common.pt"] = file.read()
    return out


def shift_one_byte(directory, data):
    """Moves a tensor's data by one byte within its archive, as a wrong offset would."""
    for path in glob.glob(directory + "/*.distcp"):
        with open(path, "rb") as file:
            content = file.read()
        if data in content:
            with open(path, "wb") as file:
                file.write(content.replace(data, data[-1:] + data[:-1]))
            return
    raise AssertionError("the data are in no file")


def swap_two_offsets(directory, key):
    """Exchanges the places of two shards of a tensor."""
    metadata = read_metadata(directory)
    first, second = [index for index in metadata.storage_data if index.fqn == key][:2]
    data = metadata.storage_data
    data[first], data[second] = data[second], data[first]
    with open(directory + "/.metadata", "wb") as file:
        pickle.dump(metadata, file)


def check_faults(origin, layout, load_verb, common):
    shifted, swapped = origin + "-shifted", origin + "-swapped"
    shutil.copytree(origin, shifted)
    part = expected("uneven")[: split(7, layout.tp, 0)[1], : split(9, layout.pp, 0)[1]]
    shift_one_byte(shifted, bits(part))
    shutil.copytree(origin, swapped)
    swap_two_offsets(swapped, "decoder.layers.mlp.linear_fc2.weight")
    for directory, key in ((shifted, "uneven"), (swapped, "decoder.layers.mlp.linear_fc2.weight")):
        on_ranks(Layout(1, 1, 1), load_faulty, directory, layout, common, {key})
        refused = subprocess.run([PROGRAM, load_verb, directory, *sizes(Layout(1, 1, 1), layout)], stderr=subprocess.PIPE)
        assert refused.returncode == 1 and (key in refused.stderr.decode() or load_verb == "load-ours"), refused


# ---- All of it


def check_version(root, folder):
    import_megatron(root)
    version = importlib.import_module("megatron.core.package_info").__version__.split("+")[0]
    theirs = f"{folder}/theirs-{version}"
    for layout in LAYOUTS:
        on_ranks(layout, load_ours_and_save, folder, theirs)
    print(f"Megatron-Core {version} reads ours", flush=True)

    for saved in LAYOUTS:
        directory = directory_of(theirs, saved)
        for step in (0, 2, 4, 6):
            layout = LAYOUTS[(LAYOUTS.index(saved) + step) % len(LAYOUTS)]
            run(PROGRAM, "load-theirs", directory, *sizes(layout, saved))
            run(PROGRAM, "load-padded", directory, *sizes(layout), str(PADDED_ROWS[step % len(PADDED_ROWS)]))
        listing = json.loads(subprocess.check_output([MGROUPS, "inspect", directory, "--json", "--sha256"]))
        assert set(listing["tensors"]) == set(TENSORS)
        for key, (dtype, shape) in TENSORS.items():
            entry = listing["tensors"][key]
            assert (entry["dtype"], entry["shape"]) == (str(dtype).removeprefix("torch."), list(shape)), (key, entry)
            assert entry["sha256"] == hashlib.sha256(bits(expected(key))).hexdigest(), key
    print(f"mgroups reads what Megatron-Core {version} writes", flush=True)

    saved = Layout(2, 2, 1)
    foreign, copy = folder + f"/foreign-{version}", folder + f"/copy-{version}"
    on_ranks(saved, save_foreign, foreign)
    command = [PROGRAM, "copy-theirs", foreign, *sizes(Layout(1, 2, 1), saved), copy]
    not_understood = subprocess.check_output(command, text=True).splitlines()
    assert len(not_understood) == len(NOT_UNDERSTOOD), not_understood
    for words in NOT_UNDERSTOOD:
        assert any(words in line for line in not_understood), (words, not_understood)
    converted = folder + f"/converted-{version}"
    run(MGROUPS, "convert", foreign, converted, "--to", "torch_dist")
    for directory in (copy, converted):
        assert object_bytes(directory) == object_bytes(foreign)
        run(MGROUPS, "verify", directory)
        on_ranks(Layout(2, 1, 1), load_copy, directory, saved)
    print(f"mgroups passes on what it does not understand of Megatron-Core {version}", flush=True)

    common = {**common_state(saved), "content_metadata": CONTENT}
    check_faults(directory_of(theirs, saved), saved, "load-theirs", common)
    ours = directory_of(f"{folder}/ours-{version}", saved)
    shutil.copytree(directory_of(folder + "/ours", saved), ours)
    check_faults(ours, saved, "load-ours", ours_common(saved))
    print("shifted and swapped data show", flush=True)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for layout in LAYOUTS:
            run(PROGRAM, "save", directory_of(folder + "/ours", layout), *sizes(layout))
        roots = glob.glob(sys.prefix + "/megatron-core-*")
        assert roots, "setup_venv.sh has not installed Megatron-Core"
        for root in sorted(roots):
            # A process of its own, since a version stays imported.
            child = mp.get_context("fork").Process(target=check_version, args=(root, folder))
            child.start()
            child.join()
            assert child.exitcode == 0, root


if __name__ == "__main__":
    sys.exit(main())
