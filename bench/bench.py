# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Runs ours, real peers and the machine's limit in turn, and prints the medians as one table and one picture. Started by run.sh."""

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile

import peers
from picture import write_picture
from state import RANKS, State, check_saved, total_bytes
from table import Table

PROGRAMS = os.environ["MGROUPS_TOOL_DIR"]
MIB = 1 << 20
LARGE = (256 * MIB, 1024 * MIB)  # in 32 tensors
SMALL = (5000, 20000)  # of 16 KiB
CORES = os.cpu_count()


def program(name, *arguments):
    """What one of our programs measures."""
    done = subprocess.run([os.path.join(PROGRAMS, "bench_" + name), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: bench_{name} {' '.join(map(str, arguments))} has failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def checkpoint(verb, path, state):
    """A function that measures it."""
    return lambda: program("checkpoint", verb, path, RANKS, *state)


def text_of(size):
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"


class Bench:
    def __init__(self, options):
        self.scale = 8 if options.quick else 1
        self.table = Table(options.repeats)
        self.started = {}

    def peer(self, kind, *command, ranks=RANKS):
        """A function that measures it; the peer's processes start now and stay."""
        if kind not in self.started:
            self.started[kind] = peers.Peer(kind, ranks)
        return lambda: self.started[kind].run(*command)

    def close(self):
        for peer in self.started.values():
            peer.close()

    def large_states(self, **layout):
        return [State(32, size // 32 // self.scale, **layout) for size in LARGE]

    def add_large(self, part, work, state, place, contestants):
        size = total_bytes(state)
        return self.table.add(part, work, contestants, place, size, text_of(size))

    def checkpoint(self, place, folder):
        """Save and load of a large state, as the first thing that a process does; peers stay alive and are warm."""
        ours, dcp, megatron, flat = (os.path.join(folder, name) for name in ("ours", "dcp", "megatron", "flat.safetensors"))
        work = f"in 32 tensors, {RANKS} ranks"
        for state in self.large_states():
            for verb in ("save", "load"):
                contestants = {
                    "limit": checkpoint("raw-write" if verb == "save" else "raw-read", folder, state),
                    "ours": checkpoint(verb, ours, state),
                    "DCP": self.peer(peers.Dcp, verb, dcp, state),
                    "Megatron-Core": self.peer(peers.Megatron, verb, megatron, state),
                    "safetensors": self.peer(peers.Safetensors, verb, flat, state, ranks=1),
                }
                self.add_large("checkpoint", f"{verb} {work}", state, place, contestants)
                if verb == "save":
                    check_saved(ours, state)

    def again(self, place, folder):
        """What the first save and load of a process pay more than later ones."""
        ours = os.path.join(folder, "ours")
        for state in self.large_states():
            contestants = {"ours": checkpoint("save-again", ours, state), "first save": checkpoint("save", ours + "-first", state)}
            self.add_large("again", f"third save of a process, {RANKS} ranks", state, place, contestants)
            check_saved(ours, state)
            contestants = {"ours": checkpoint("load-again", ours, state), "first load": checkpoint("load", ours, state)}
            self.add_large("again", f"second load of a process, {RANKS} ranks", state, place, contestants)

    def load_cut(self, work, part, state, saved, place, folder):
        """Loads what was saved in another cut, `saved`; the note says how much is read for it."""
        ours, dcp = os.path.join(folder, "ours"), os.path.join(folder, "dcp")
        contestants = {
            "limit": checkpoint("raw-read", folder, state),
            "ours": checkpoint("load", ours, state),
            "DCP": self.peer(peers.Dcp, "load", dcp, state),
        }
        row = self.add_large(part, work, state, place, contestants)
        contiguous = checkpoint("load", ours, saved)()
        ratios = [sample["bytes_read"] / sample["bytes_needed"] for sample in (row.samples["ours"][-1], contiguous)]
        self.table.note(row, f"bytes read for each byte needed: {ratios[0]:.2f}; loaded in the cut that was saved: {ratios[1]:.2f}")

    def save_for_loads(self, state, folder):
        checkpoint("save", os.path.join(folder, "ours"), state)()
        self.peer(peers.Dcp, "save", os.path.join(folder, "dcp"), state)()

    def rows(self, place, folder):
        """Saved in blocks of rows, loaded in blocks of columns: many short runs."""
        for run, run_text in ((512, "512 bytes"), (64 << 10, "64 KiB")):
            for saved in self.large_states(row_bytes=RANKS * run):
                self.save_for_loads(saved, folder)
                work = f"load {RANKS} columns of runs of {run_text} from {RANKS} blocks of rows"
                self.load_cut(work, "rows", saved._replace(cut="axis1"), saved, place, folder)

    def copies(self, place, folder):
        """Every rank loads everything. The limit reads as many bytes as all ranks together need."""
        for saved in self.large_states():
            self.save_for_loads(saved, folder)
            self.load_cut(f"load all on each of {RANKS} ranks", "copies", saved._replace(cut="copies"), saved, place, folder)

    def small(self, place, folder):
        """Many small tensors. DCP takes so long that it runs in two rounds only, on disk in one."""
        ours, dcp, flat = (os.path.join(folder, name) for name in ("ours", "dcp", "flat.safetensors"))
        for count in SMALL:
            state = State(count // self.scale, 16 << 10, "dealt")
            for verb in ("save", "load"):
                raw = "write" if verb == "save" else "read"
                contestants = {
                    "limit": checkpoint("raw-" + raw, folder, state),
                    "ours": checkpoint(verb, ours, state),
                    "DCP": self.peer(peers.Dcp, verb, dcp, state),
                    "safetensors": self.peer(peers.Safetensors, verb, flat, state, ranks=1),
                }
                row = self.table.add("small", f"{verb} small tensors of 16 KiB, {RANKS} ranks", contestants, place, state.tensors,
                                     f"{state.tensors} tensors", rounds={"DCP": 1 if place == "disk" else 2})
                wall, cpu = (1e6 * row.beyond_limit(what) / state.tensors for what in ("seconds", "cpu_seconds"))
                self.table.note(row, f"each tensor {wall:.2f} us beyond the raw {raw}, {cpu:.2f} us of CPU")
                if verb == "save":
                    check_saved(ours, state)

    def stage(self, place, folder):
        """What training waits for in an asynchronous save, against a copy of the same bytes."""
        ours = os.path.join(folder, "ours")
        for state in self.large_states():
            contestants = {"limit": checkpoint("memcpy", folder, state), "ours": checkpoint("stage", ours, state)}
            self.add_large("stage", f"stage for an asynchronous save, {RANKS} ranks", state, place, contestants)
            check_saved(ours, state)

    def training(self, place, folder):
        """The same steps while asynchronous saves are always in flight; alone; and beside a memcpy and plain writes of the
        same bytes, at the same priority, which no such save can do without."""
        ours, steps = os.path.join(folder, "ours"), 240 // self.scale
        for ranks in sorted({max(1, CORES - 1), CORES}):
            for state in self.large_states():
                state = state._replace(bytes_each=state.bytes_each // 4)
                measure = lambda verb, to=ours: program("training", verb, to, ranks, state.tensors, state.bytes_each, steps)
                work = f"{steps} training steps on {ranks} of {CORES} cores, saves always in flight"
                contestants = {
                    "ours": functools.partial(measure, "saving"),
                    "alone": functools.partial(measure, "alone", os.path.join(folder, "none")),
                    "limit": functools.partial(measure, "writing", os.path.join(folder, "plain")),
                }
                # Without a size: the steps are the same for all, so that their time has no exponent.
                row = self.table.add("training", work, contestants, place, size_text=text_of(total_bytes(state)))
                self.table.note(row, "; ".join(self.slowdown(row, name, text) for name, text in (
                    ("ours", "saves"), ("limit", "memcpy and plain writes (the limit)"))))
                check_saved(ours, state)

    @staticmethod
    def slowdown(row, name, text):
        alone, seconds = row.median("alone"), row.median(name)
        staging, begun = row.median(name, "staging"), row.median(name, "saves")
        return (f"{text}: {100 * (seconds / alone - 1):.1f} % slower than alone, {100 * ((seconds - staging) / alone - 1):.1f} % "
                f"but for the copies, {begun:g} begun meanwhile")

    def note_others(self, row):
        """Whatever else our program has said."""
        others = [(name, value) for name, value in row.samples["ours"][-1].items() if name not in ("seconds", "cpu_seconds")]
        if others:
            self.table.note(row, ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in others))

    def plan(self):
        for ranks in (1024, 4096, 16384):
            measure = functools.partial(program, "plan", 1000, ranks // self.scale)
            row = self.table.add("plan", "plan 1000 tensors on simulated ranks", {"ours": measure}, size=ranks // self.scale,
                                 size_text=f"{ranks // self.scale} ranks", rounds={"ours": 2} if ranks > 10000 else None)
            self.note_others(row)

    def metadata(self):
        """`.metadata` against Python's pickle of the same object of torch, which also shows that Python reads it. Python takes
        close to a minute for a million chunks: one round."""
        if not os.path.exists(os.path.join(PROGRAMS, "bench_metadata")):
            print("metadata: left out, the program bench_metadata is not there")
            return
        for tensors in (100 // self.scale, 1000 // self.scale):
            chunks, sizes = 1000 * tensors, (tensors, 1000)
            rounds = {"pickle": 1} if chunks > 500_000 else {"pickle": 3}
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                file = os.path.join(folder, ".metadata")
                ours = lambda verb: functools.partial(program, "metadata", verb, *sizes, file)
                ours("write")()
                for verb, peer in (("parse", "loads"), ("parse-part", None), ("write", "dumps")):
                    contestants = {"ours": ours(verb)}
                    if peer is not None:
                        contestants["pickle"] = self.peer(peers.Pickle, peer, file, ranks=1)
                    self.note_others(self.table.add("metadata", f"{verb} .metadata", contestants, size=chunks,
                                                    size_text=f"{chunks:,} chunks", rounds=rounds))

    def all_gather(self):
        for ranks in (2, 4):
            for size in (16 * MIB, 64 * MIB):
                measure = lambda verb: functools.partial(program, "all_gather", verb, ranks, size)
                self.table.add("all_gather", f"all_gather on {ranks} threads", {"limit": measure("memcpy"), "ours": measure("ours")},
                               size=size, size_text=text_of(size))


FILE_PARTS = ("checkpoint", "again", "rows", "copies", "small", "stage", "training")
OTHER_PARTS = ("plan", "metadata", "all_gather")


def machine():
    """What the figures belong to."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    versions = {name: importlib.metadata.version(name) for name in ("torch", "safetensors")}
    versions["megatron-core"] = peers.megatron_root().rsplit("-", 1)[1]
    return {"cpu": model, "cores": CORES, "system": platform.release(), **versions}


def run_parts(bench, options):
    for place, parent in (("disk", options.disk), ("tmpfs", "/dev/shm")):
        if not os.access(parent, os.W_OK):
            print(f"{place}: left out, {parent} is not there or cannot be written to")
            continue
        for part in FILE_PARTS:
            if options.only in part:
                with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as folder:
                    getattr(bench, part)(place, folder)
    for part in OTHER_PARTS:
        if options.only in part:
            getattr(bench, part)()


def main():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="rounds of each measurement (default 5)")
    parts = ", ".join(FILE_PARTS + OTHER_PARTS)
    parser.add_argument("--only", metavar="WORD", default="", help="only parts whose name holds it: " + parts)
    parser.add_argument("--quick", action="store_true", help="sizes / 8, to check that everything runs")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")
    parser.add_argument("--svg", metavar="FILE", default="build/run/bench.svg", help="draw the picture there (default build/run/bench.svg)")
    parser.add_argument("--disk", metavar="DIRECTORY", default="build", help="where the disk is measured (default build)")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        run_parts(bench, options)
    finally:
        bench.close()
        rows = bench.table.rows
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"machine": machine(), "repeats": options.repeats, "rows": [row.to_json() for row in rows]}, file, indent=1)
        if rows:
            os.makedirs(os.path.dirname(options.svg) or ".", exist_ok=True)
            write_picture(options.svg, rows, machine(), options.repeats)


if __name__ == "__main__":
    sys.exit(main())
