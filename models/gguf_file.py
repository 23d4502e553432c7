"""A GGUF file as the ``gguf`` package reads it: metadata, and tensors that stay in the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazygraph.errors import LazyGraphError, UnsupportedError, WeightsError
from lazygraph.models.files import asking_line, require

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor


class GgufFile:
    """A GGUF file, memory-mapped.

    Args:
        path: The file.

    Attributes:
        path: The file.
        metadata: Its key-value pairs: str, int, float, bool, or a list of these.
        tensors: Its tensors by GGUF name; ``data`` of each is a view of the file.

    Raises:
        WeightsError: The file is absent, truncated, or not GGUF.
        UnsupportedError: One part of a file that was split, or a tensor type that the gguf package does not know.

    Source: ggml/docs/gguf.md.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metadata, self.tensors = _read(self.path)

        if self.metadata.get("split.count", 1) not in (0, 1):
            raise UnsupportedError(
                f"{self.path.name} is one part of {self.metadata['split.count']}",
                op="open",
                operands={"file": self.path},
                hint="join the parts with llama.cpp's llama-gguf-split --merge",
                at=asking_line(),
            )

    @property
    def architecture(self) -> str:
        """``general.architecture``, the prefix of the model's own keys; empty when the file names none."""
        return str(self.metadata.get("general.architecture", ""))

    def __repr__(self) -> str:
        return f"GgufFile({str(self.path)!r}: {self.architecture or '?'}, {len(self.tensors)} tensors)"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, ReaderTensor]]:
    if not path.is_file():
        raise WeightsError("no such file", op="open", operands={"file": path}, at=asking_line())
    require("gguf")
    try:
        reader = _reader_class()(path)
        fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        metadata = {name: field.contents() for name, field in fields.items()}
    except LazyGraphError:
        raise
    except Exception as error:  # the package reports a bad file as ValueError, IndexError, KeyError and others
        raise WeightsError(
            f"{path.name} is not a whole GGUF file: {error}",
            op="open",
            operands={"file": path},
            hint="an interrupted download, or a Git LFS pointer instead of the file",
            at=asking_line(),
        ) from error
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def _reader_class() -> type[GGUFReader]:
    """Return the package's reader with two of its steps replaced; without them it is only slower and vaguer."""
    from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFReader
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

    class Reader(GGUFReader):
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            # The package makes several numpy arrays per element: 4 s for a vocabulary of 49,152, 12 s for 151,936.
            if raw_type != GGUFValueType.ARRAY or self.byte_order != "I":
                return super()._get_field_parts(orig_offs, raw_type)

            view = memoryview(self.data)  # type: ignore[arg-type]
            item, count = struct.unpack_from("<IQ", view, orig_offs)
            start = orig_offs + 12
            kind = GGUFValueType(item)
            number = self.gguf_scalar_to_np.get(kind)
            if number is not None:
                whole = self._get(start, number, count)
                if whole.size != count:
                    raise ValueError(f"an array of {count} elements passes the end of the file")
                return 12 + int(whole.nbytes), [whole], [0], [GGUFValueType.ARRAY, kind]
            if kind != GGUFValueType.STRING:
                return super()._get_field_parts(orig_offs, raw_type)

            parts = []
            for _ in range(count):
                (length,) = struct.unpack_from("<Q", view, start)
                if length > len(view) - start - 8:
                    raise ValueError(f"a string of {length} bytes passes the end of the file")
                parts.append(view[start + 8 : start + 8 + length])
                start += 8 + length
            return start - orig_offs, parts, list(range(count)), [GGUFValueType.ARRAY, kind]

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            # The package slices what is there and then fails to reshape it, without the tensor's name.
            alignment = int(getattr(self, "alignment", GGUF_DEFAULT_ALIGNMENT))
            for field in fields:
                dims, code, offset = field.parts[3].tolist(), int(field.parts[4][0]), int(field.parts[5][0])
                if code not in GGMLQuantizationType._value2member_map_:
                    raise UnsupportedError(
                        f"tensor {field.name!r} has type number {code}, which this gguf package does not know",
                        op="open",
                        expected="one of " + ", ".join(kind.name for kind in GGMLQuantizationType),
                        hint="a newer gguf package may know it",
                        at=asking_line(),
                    )
                block, size = GGML_QUANT_SIZES[GGMLQuantizationType(code)]
                count = 1
                for dim in dims:
                    count *= int(dim)
                end = start_offs + offset + count // block * size
                if (dims and dims[0] % block) or offset % alignment or end > len(self.data):
                    raise ValueError(
                        f"tensor {field.name!r} of sizes {dims} ends at byte {end} of {len(self.data)}"
                        if end > len(self.data)
                        else f"tensor {field.name!r} of sizes {dims} at offset {offset} does not fit its type's blocks"
                    )
            super()._build_tensors(start_offs, fields)

    return Reader
