# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The mgroups authors
"""Rows of a table: contestants that ran in turn, their medians, and how time grows with size."""

import math
import statistics
import sys


class Row:
    """One measured work. `samples`: contestant ("ours", "limit" or a peer's name) -> what each round gave, a dict with at
    least "seconds" and "cpu_seconds"."""

    def __init__(self, part, work, place, size, size_text):
        self.part, self.work, self.place, self.size, self.size_text = part, work, place, size, size_text
        self.samples, self.notes, self.exponents = {}, [], {}

    def median(self, name, what="seconds"):
        values = [sample.get(what) for sample in self.samples[name]]
        return None if None in values else statistics.median(values)

    def ratio(self, name, what):
        """Theirs over ours, or none."""
        ours, other = self.median("ours", what), self.median(name, what)
        return other / ours if ours and other is not None else None

    def beyond_limit(self, what):
        return self.median("ours", what) - self.median("limit", what)

    def names(self):
        """Ours first, the limit last."""
        return sorted(self.samples, key=lambda name: (name != "ours", name == "limit"))

    def title(self):
        return ", ".join(text for text in (self.work, self.size_text, self.place) if text)

    def to_json(self):
        medians = {name: {"seconds": self.median(name), "cpu_seconds": self.median(name, "cpu_seconds")} for name in self.samples}
        return {"part": self.part, "work": self.work, "place": self.place, "size": self.size, "size_text": self.size_text,
                "medians": medians, "exponents": self.exponents, "notes": self.notes, "samples": self.samples}


class Table:
    def __init__(self, repeats):
        self.repeats, self.rows = repeats, []
        print(f"{'work':46} {'rounds':>6} {'wall s':>9} {'CPU s':>9} {'speed ours/it':>13} {'CPU ours/it':>11}")

    def add(self, part, work, contestants, place="", size=None, size_text="", rounds=None):
        """Runs all contestants (name -> function that returns a sample) once in each round; one that is named in `rounds` in
        so many rounds only. Prints times, and the exponent of growth since the same work of another size."""
        row = Row(part, work, place, size, size_text)
        rounds = {name: min(self.repeats, (rounds or {}).get(name, self.repeats)) for name in contestants}
        row.samples = {name: [] for name in contestants}
        for step in range(max(rounds.values())):
            for name, run in contestants.items():
                if step < rounds[name]:
                    progress(f"{row.title()}: {name}, round {step + 1} of {rounds[name]}")
                    row.samples[name].append(run())
        progress("")
        before = next((other for other in reversed(self.rows) if (other.work, other.place) == (work, place)), None)
        if before is not None and size:
            for name in row.names():
                if name in before.samples:
                    row.exponents[name] = math.log(row.median(name) / before.median(name)) / math.log(size / before.size)
        self.rows.append(row)
        print(row.title())
        for name in row.names():
            print(self.line(row, name, rounds[name]))
        if row.exponents:
            grown = ", ".join(f"{name} {value:.2f}" for name, value in row.exponents.items())
            self.note(row, f"exponent since {before.size_text}: {grown}")
        sys.stdout.flush()
        return row

    @staticmethod
    def note(row, text):
        row.notes.append(text)
        print("    " + text, flush=True)

    @staticmethod
    def line(row, name, rounds):
        def number(value, width, digits):
            return f"{value:{width}.{digits}f}" if value is not None else " " * (width - 1) + "-"

        # As speeds: above 1 ours is faster. CPU: below 1 ours takes less.
        speed, cpu = row.ratio(name, "seconds"), row.ratio(name, "cpu_seconds")
        ratios = f"{number(speed, 13, 2)} {number(1 / cpu if cpu else None, 11, 2)}" if name != "ours" else ""
        return f"  {name:44} {rounds:6} {number(row.median(name), 9, 4)} {number(row.median(name, 'cpu_seconds'), 9, 4)} {ratios}".rstrip()


def progress(text):
    if sys.stderr.isatty():
        print("\r\x1b[K" + text, end="", file=sys.stderr, flush=True)
