"""``lazygraph doctor``: what is installed, what is missing, and the command that installs it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from lazygraph.version import VERSION

# What each package is for; the first three are needed by everything.
_PACKAGES = {
    "numpy": "everything",
    "onnx": "everything",
    "ml_dtypes": "everything",
    "onnxruntime": "running models",
    "safetensors": "Hugging Face checkpoints",
    "gguf": "GGUF checkpoints",
    "tokenizers": "text in and out",
    "jinja2": "chat templates",
    "rich": "progress bars and trees",
}
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")


def add_doctor(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="say what is installed, and what is missing",
        description="Report versions, providers, processor and memory; say what is missing and how to install it.",
        epilog="Exit codes: 0 a provider runs, 1 none does.",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    found = examine()
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        _print(found)
    return 0 if any(state == "runs" for state in found["providers"].values()) else 1


def examine() -> dict[str, Any]:
    """Return what is installed and what runs."""
    packages = {name: _version(name) for name in _PACKAGES}
    installed = {str(found.metadata["Name"]).lower() for found in distributions() if found.metadata["Name"]}
    runtimes = [name for name in _RUNTIMES if name in installed]
    packages["onnxruntime"] = _version(runtimes[-1]) if runtimes else None
    advice = []
    missing = [name for name, found in packages.items() if found is None and name != "onnxruntime"]
    if missing:
        advice.append({"what": f"not installed: {', '.join(missing)}", "command": f"pip install {' '.join(missing)}"})
    if not runtimes:
        advice.append({"what": "no onnxruntime", "command": "pip install onnxruntime"})
    if len(runtimes) > 1:
        names = " ".join(runtimes)
        keep = "onnxruntime-gpu" if "onnxruntime-gpu" in runtimes else runtimes[0]
        advice.append(
            {
                "what": f"{' and '.join(runtimes)} lie in one folder and overwrite each other",
                "command": f"pip uninstall -y {names} && pip install {keep}",
            }
        )
    providers = _providers(advice)
    return {
        "lazygraph": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu_features": _features(),
        "memory_bytes": _memory(),
        "packages": packages,
        "runtimes": runtimes,
        "providers": providers,
        "advice": advice,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _providers(advice: list[dict[str, str]]) -> dict[str, str]:
    """Return of each provider whether it ran a small model, or why not."""
    from lazygraph.errors import LazyGraphError
    from lazygraph.export.session import probe

    found = {}
    for provider in ("cpu", "cuda"):
        try:
            probe(provider)
            found[provider] = "runs"
        except LazyGraphError as error:
            found[provider] = error.what.splitlines()[0]
            if provider == "cuda" and Path("/dev/nvidia0").exists():
                advice.append(
                    {
                        "what": "there is an NVIDIA device, and CUDA does not run",
                        "command": "pip uninstall -y onnxruntime && pip install onnxruntime-gpu",
                    }
                )
    return found


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _features() -> list[str]:
    """Return what of the processor's features matters to onnxruntime; empty where it cannot be asked."""
    wanted = [
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512_vnni",
        "avx_vnni",
        "avx512_bf16",
        "amx_int8",
        "amx_bf16",
        "asimddp",
        "i8mm",
        "bf16",
        "sve",
    ]
    for line in _lines("/proc/cpuinfo"):
        if line.startswith(("flags", "Features")):
            there = set(line.partition(":")[2].split())
            return [name for name in wanted if name in there]
    return []


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _print(found: dict[str, Any]) -> None:
    rows = {
        "lazygraph": found["lazygraph"],
        "python": f"{found['python']} on {found['system']}",
        "processor": f"{found['processor']}, {found['cpus']} in use",
        "features": " ".join(found["cpu_features"]) or "unknown",
        "memory": f"{found['memory_bytes'] / 2**30:.1f} GiB" if found["memory_bytes"] else "unknown",
    }
    for name, number in found["packages"].items():
        rows[name] = number or f"missing: needed for {_PACKAGES[name]}"
    for name, state in found["providers"].items():
        rows[f"{name} provider"] = state
    print("\n".join(f"{label:<14} {text}" for label, text in rows.items()))
    for entry in found["advice"]:
        print(f"\n{entry['what']}\n  {entry['command']}")
    if not found["advice"]:
        print("\nnothing is missing", file=sys.stdout)
