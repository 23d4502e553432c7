"""Whether a weights file still holds what was saved: its name is a digest of its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lazygraph.errors import ExportError
from lazygraph.export import files


def check_weights(model_file: Path) -> None:
    """Read a model's weights file as a whole and compare it with its name, which its content made.

    Raises:
        ExportError: A weight differs from what was saved, is missing, or its file was not named by lazygraph.
    """
    from onnx import TensorProto, load

    model = load(model_file, load_external_data=False)
    places: dict[str, dict[int, int]] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            entry = {item.key: item.value for item in tensor.external_data}
            at = places.setdefault(entry["location"], {})
            at[int(entry.get("offset", 0))] = int(entry["length"])
    for name, weights in places.items():
        if not files.is_weights_name(model_file, name):
            raise ExportError(
                f"{name} was not named after its content",
                op="open",
                expected="weights that lazygraph wrote under a name of its own choice",
                hint="open it without the check",
            )
        if _name(model_file, name, weights) != name:
            raise ExportError(
                f"{model_file.with_name(name)} is damaged: its content is not what its name says",
                op="open",
                expected="the weights file as it was written",
                hint="copy it again, or export again",
            )


def _name(model_file: Path, name: str, weights: dict[int, int]) -> str:
    """Return the name that a file's content makes (see ``lazygraph.export.weights.WeightsFile``)."""
    whole = hashlib.sha256()
    try:
        with model_file.with_name(name).open("rb") as stream:
            for start, length in sorted(weights.items()):
                stream.seek(start)
                digest = hashlib.sha256()
                left = length
                while left and (part := stream.read(min(left, 2**24))):
                    digest.update(part)
                    left -= len(part)
                whole.update(f"{start} ".encode() + digest.digest())
    except OSError as error:
        raise ExportError(
            f"{model_file.with_name(name)} cannot be read: {error.strerror or error}",
            op="open",
            expected="the weights file beside the model, as it was saved",
        ) from None
    return files.weights_name(model_file, whole.hexdigest())


__all__ = ["check_weights"]
