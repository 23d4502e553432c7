"""Which element types the kernels of onnxruntime's CPU provider take, from a table that its own registry wrote.

``python -m lazygraph.export.kernels`` writes the table anew from the installed onnxruntime; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

# One letter per element type, by onnxruntime's spelling.
LETTERS = {
    "float": "f",
    "double": "d",
    "float16": "h",
    "bfloat16": "b",
    "int8": "i",
    "int16": "j",
    "int32": "k",
    "int64": "l",
    "uint8": "u",
    "uint16": "v",
    "uint32": "w",
    "uint64": "x",
    "bool": "B",
    "string": "S",
    "int4": "4",
    "uint4": "5",
    "int2": "2",
    "uint2": "3",
    "float8e4m3fn": "p",
    "float8e4m3fnuz": "q",
    "float8e5m2": "r",
    "float8e5m2fnuz": "s",
    "float8e8m0": "t",
    "float4e2m1": "y",
    "complex64": "c",
    "complex128": "C",
}
NEWEST = 2**31 - 1


class Kernel(NamedTuple):
    """One kernel: the versions it serves and the letters that each type variable may be."""

    first: int
    last: int
    types: Mapping[str, str]


def cpu_kernels(op: str, domain: str = "") -> tuple[Kernel, ...]:
    """Return the CPU provider's kernels of an operator."""
    return _cpu_table().get((domain, op), ())


@lru_cache(maxsize=1)
def _cpu_table() -> dict[tuple[str, str], tuple[Kernel, ...]]:
    from lazygraph.export.kernels_cpu import TABLE

    found: dict[tuple[str, str], list[Kernel]] = {}
    for line in TABLE.split("\n"):
        if line:
            name, versions, *limits = line.split(" ")
            domain, _, op = name.rpartition(":")
            first, _, last = versions.partition("-")
            types = dict(limit.split("=") for limit in limits)
            found.setdefault((domain, op), []).append(Kernel(int(first), int(last or NEWEST), types))
    return {key: tuple(kernels) for key, kernels in found.items()}


def written(kernels: Iterable[Any]) -> str:
    """Return the table of onnxruntime's kernel definitions, as ``lazygraph.export.kernels_cpu`` holds it."""
    groups: dict[tuple[str, int, int], list[dict[str, str]]] = {}
    for kernel in kernels:
        first, last = kernel.version_range
        if kernel.provider != "CPUExecutionProvider" or kernel.domain.startswith("com.microsoft."):
            continue
        if kernel.domain == "" and last < 13:
            continue
        name = f"{kernel.domain}:{kernel.op_name}" if kernel.domain else kernel.op_name
        groups.setdefault((name, first, last), []).append(_letters(kernel.type_constraints))
    lines: list[str] = []
    for (name, first, last), types in sorted(groups.items()):
        end = "" if last == NEWEST else str(last)
        lines += [" ".join([name, f"{first}-{end}", *limits]) for limits in _merged(types)]
    return "\n".join(lines)


def _letters(limits: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the letters of the tensor types that each variable may be; a variable of other types is left out."""
    found: dict[str, str] = {}
    for variable, types in sorted(limits.items()):
        known = [LETTERS[text[7:-1]] for text in types if text.startswith("tensor(") and text[7:-1] in LETTERS]
        if known:
            found[variable] = "".join(sorted(known))
    return found


def _merged(kernels: list[dict[str, str]]) -> list[list[str]]:
    """Return the kernels' limits, those that differ in one variable only joined."""
    rows = [dict(kernel) for kernel in kernels]
    joined = True
    while joined:
        joined = False
        for i, one in enumerate(rows):
            for other in rows[i + 1 :]:
                differing = [variable for variable in one if one[variable] != other.get(variable)]
                if one.keys() == other.keys() and len(differing) <= 1:
                    for variable in differing:
                        one[variable] = "".join(sorted(set(one[variable] + other[variable])))
                    rows = [row for row in rows if row is not other]
                    joined = True
                    break
            if joined:
                break
    return sorted([f"{variable}={letters}" for variable, letters in row.items()] for row in rows)


def main() -> None:
    """Write the table beside this file."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    head = (
        f'"""The kernels of onnxruntime {onnxruntime.__version__}\'s CPU provider. '
        'Generated: ``python -m lazygraph.export.kernels``."""\n\n'
        "from __future__ import annotations\n\n"
        "# operator, versions, letters of lazygraph.export.kernels.LETTERS per type variable\n"
    )
    table = written(state.get_all_opkernel_def())
    Path(__file__).with_name("kernels_cpu.py").write_text(f'{head}TABLE = """\n{table}\n"""\n', encoding="utf-8")
    sys.stdout.write(f"{table.count(chr(10)) + 1} kernels\n")


if __name__ == "__main__":
    main()
