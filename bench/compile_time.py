# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""What including the library costs: CPU seconds of the compiler above the standard headers that a header needs, and for a program
that saves and loads. Medians, interleaved; one table against the recorded budget. Needs a compiler alone."""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = os.path.join(ROOT, "include")
# Seconds above the standard headers, on the machine of RESULTS.md. Other machines: see the ratio to the standard headers.
BUDGET = {"mgroups/mgroups.hpp": 4.5, "mgroups/group/context.hpp": 1.5, "mgroups/comm/threads.hpp": 1.5}
PROGRAM = os.path.join(ROOT, "examples", "01_groups_and_checkpoint.cpp")
PROGRAM_BUDGET = {"-O0": 20.0, "-O2": 40.0}


def standard_headers(compiler, header):
    """The standard headers that `header` and what it includes of ours name."""
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
        source.write(f"#include <{header}>\n")
        source.flush()
        text = subprocess.run([compiler, "-std=c++20", "-I", INCLUDE, "-M", source.name], check=True, capture_output=True, text=True).stdout
    found = set()
    for path in re.findall(r"\S+/mgroups/\S+\.hpp", text):
        with open(path) as file:
            found |= {name for name in re.findall(r"^#include <([^>]+)>", file.read(), re.M) if not name.startswith("mgroups/")}
    return sorted(found)


def cpu_seconds(compiler, text, *flags):
    with tempfile.TemporaryDirectory() as directory:
        source = os.path.join(directory, "unit.cpp")
        with open(source, "w") as file:
            file.write(text)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([compiler, "-std=c++20", "-I", INCLUDE, *flags, source, "-o", os.path.join(directory, "out")], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python3 bench/compile_time.py --compiler clang++-16 --repeats 5")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    units = {}
    for header in BUDGET:
        lines = "".join(f"#include <{name}>\n" for name in standard_headers(options.compiler, header))
        units[header] = (f"#include <{header}>\n", lines)
    samples = {header: ([], []) for header in units}
    for _ in range(options.repeats):
        for header, texts in units.items():
            for kind, text in enumerate(texts):
                samples[header][kind].append(cpu_seconds(options.compiler, text, "-fsyntax-only"))
    for header, (ours, standard) in samples.items():
        with_library, alone = statistics.median(ours), statistics.median(standard)
        rows.append({"unit": f"#include <{header}>", "seconds": with_library - alone, "standard": alone, "budget": BUDGET[header]})
    with open(PROGRAM) as file:
        program = file.read()
    for level, budget in PROGRAM_BUDGET.items():
        seconds = statistics.median(cpu_seconds(options.compiler, program, level, "-c") for _ in range(max(1, options.repeats // 2)))
        rows.append({"unit": f"{os.path.basename(PROGRAM)} {level}", "seconds": seconds, "standard": None, "budget": budget})
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'unit':<45} {'seconds':>8} {'standard headers':>17} {'budget':>7} {'within':>7}")
    for row in rows:
        standard = "" if row["standard"] is None else f"{row['standard']:.2f}"
        print(f"{row['unit']:<45} {row['seconds']:>8.2f} {standard:>17} {row['budget']:>7.1f} {'yes' if row['seconds'] <= row['budget'] else 'no':>7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
