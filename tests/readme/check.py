# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Every C++ block of the README is a marked region of a compiled file, named in the comment above it."""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    with open(os.path.join(ROOT, "README.md")) as file:
        readme = file.read()
    blocks = re.findall(r"(?:<!-- (\S+): (.+?) -->\n)?```cpp\n(.*?)```", readme, re.S)
    faults = [] if blocks else ["the README has no C++ block"]
    for path, mark, block in blocks:
        if not path:
            faults.append(f"a block names no file: {block.splitlines()[0]}")
            continue
        with open(os.path.join(ROOT, path)) as file:
            parts = file.read().split(f"// [{mark}]\n")
        if len(parts) != 3 or parts[1] != block:
            faults.append(f"the block '{mark}' is not the one in {path}")
    prose = re.sub(r"```.*?```", "", readme, flags=re.S)
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", prose):
        if not os.path.exists(os.path.join(ROOT, target)):
            faults.append(f"the README links to {target}, which does not exist")
    print("\n".join(faults) or f"{len(blocks)} blocks are as compiled")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
