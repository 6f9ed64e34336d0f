# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""The state that is measured, and whether torch finds in a checkpoint what our program must have saved."""

import collections
import warnings

import numpy
import torch
import torch.distributed.checkpoint as dcp

RANKS = 2

# Matrices of float32: how many, bytes of each, how they lie on the ranks (axis0, axis1: split along that axis; copies: whole on
# every rank; dealt: each whole on one rank), and bytes of a row. numbered_state.hpp has the same.
State = collections.namedtuple("State", "tensors bytes_each cut row_bytes", defaults=("axis0", 64))


def key(tensor):
    return f"layer.{tensor}.weight"


def shape(state):
    return state.bytes_each // state.row_bytes, state.row_bytes // 4


def total_bytes(state):
    return state.tensors * state.bytes_each


def element_bits(tensor, places):
    """The bits of each element by its place in the global tensor, as element_bits in numbered_state.hpp."""
    bits = (places + numpy.uint32(tensor * 0x9E3779B1 % 2**32)) * numpy.uint32(0x85EBCA6B)
    return bits ^ (bits >> numpy.uint32(13))


def check_saved(path, state):
    """Loads all of the checkpoint with torch and stops the benchmark where an element is not what was saved."""
    rows, columns = shape(state)
    loaded = {key(i): torch.zeros(rows, columns) for i in range(state.tensors)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process
        dcp.load(loaded, checkpoint_id=path, no_dist=True)
    places = numpy.arange(rows * columns, dtype=numpy.uint32)
    for i in range(state.tensors):
        found = loaded[key(i)].numpy().view(numpy.uint32).reshape(-1)
        wrong = numpy.flatnonzero(found != element_bits(i, places))
        if wrong.size > 0:
            raise SystemExit(f"bench: torch finds {wrong.size} wrong elements in '{key(i)}' of what ours saved, the first at {wrong[0]}")
