#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Compiles the files of this folder section by section: section 0 must build, every other must fail with its text.

A line `// SECTION 3: text` says what the compiler's output must contain when the file is compiled with -DSECTION=3.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys

PATTERN = re.compile(r"^// SECTION (\d+): (.+?)\s*$", re.MULTILINE)


def compile_section(arguments, source, section):
    command = [*shlex.split(arguments.compiler), "-std=c++20", "-fsyntax-only", f"-DSECTION={section}"]
    command += ["-I", arguments.include, *arguments.flag, str(source)]
    environment = {**os.environ, "LC_ALL": "C"}
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
    )
    return result.returncode, result.stdout


def sections_of(source):
    wanted = {0: []}
    for number, text in PATTERN.findall(source.read_text(encoding="utf-8")):
        wanted.setdefault(int(number), []).append(text)
    return wanted


def fault(section, texts, returncode, output):
    if section == 0:
        return None if returncode == 0 else "does not build"
    if returncode == 0:
        return "builds, but must not"
    missing = [text for text in texts if text not in output]
    if missing:
        return f"fails without the text {missing[0]!r}"
    # One sentence, not a cascade: whatever follows the first error is noise to whoever reads it.
    errors = len(re.findall(r"\b(?:fatal )?error: ", output))
    return f"gives {errors} errors instead of one" if errors != 1 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--flag", action="append", default=[], help="passed to the compiler, may be repeated")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="default: every .cpp beside this script")
    arguments = parser.parse_args()
    sources = arguments.files or sorted(pathlib.Path(__file__).resolve().parent.glob("*.cpp"))

    failed = checked = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for source in sources:
            for section, texts in sorted(sections_of(source).items()):
                jobs.append((source, section, texts, pool.submit(compile_section, arguments, source, section)))
        for source, section, texts, job in jobs:
            returncode, output = job.result()
            checked += 1
            problem = fault(section, texts, returncode, output)
            if problem:
                failed += 1
                print(f"{source.name}, section {section}: {problem}\n{output}", file=sys.stderr)
    print(f"{checked - failed} of {checked} sections as they should be")
    return 1 if failed or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
