"""Tensors from the generator, and tensors as bytes: hashed, sampled, compared.

The hash of a tensor is SHA-256 over dtype, shape and the contiguous little-endian
bytes, and canonicalises nothing: -0 is not 0, and one NaN is not another. Hashes that
are sums or norms miss permuted or negated tensors; this one cannot.

torch is handed in, never imported. Travels to nodes: Python 3.8 and newer.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, List, Optional, Tuple

from envlock.canary.inputs import Input
from envlock.digest import Digest

SAMPLES = 64
"""Elements kept of each T3 output, evenly strided, for telling how far two runs are apart."""


class Output:
    """One result of the suite: its name, its text, and what lets two of them be measured.

    `value` is `ok` or `wrong: ...` (T1), a small text or digest (T2), a digest (T3).
    `sample` holds raw element bytes as hex, `stride` elements apart. `device` is where it
    was computed, as far as the output is a tensor; not part of the report.
    """

    __slots__ = ("canonical", "detail", "device", "dtype", "name", "sample", "shape", "stride", "value")

    def __init__(self, name: str, value: str, detail: str = "") -> None:
        self.name = name
        self.value = value
        self.detail = detail
        self.device: Optional[str] = None
        self.dtype: Optional[str] = None
        self.shape: Tuple[int, ...] = ()
        self.sample: Optional[str] = None
        self.stride = 1
        self.canonical: Optional[str] = None

    def to_document(self) -> Dict[str, Any]:
        """Return the output as it stands in the report."""
        document: Dict[str, Any] = {"name": self.name, "value": self.value}
        if self.detail:
            document["detail"] = self.detail
        if self.dtype is not None:
            document["dtype"] = self.dtype
            document["shape"] = list(self.shape)
        if self.sample is not None:
            document["sample"] = {"stride": self.stride, "hex": self.sample}
        if self.canonical is not None:
            document["nan-canonical"] = self.canonical
        return document


def raw_bytes(torch: Any, tensor: Any) -> bytes:
    """Return the elements of `tensor` as contiguous little-endian bytes, row by row."""
    held = tensor.detach().to("cpu").contiguous()
    size = held.numel() * held.element_size()
    return ctypes.string_at(held.data_ptr(), size) if size else b""


def columns(matrix: Any, device: str) -> Any:
    """Return `matrix` as the second factor of an 8-bit product on `device`.

    On a GPU it lies column by column: the form that cuBLASLt takes on every architecture
    with 8-bit tensor cores. On the CPU it stays as it is.
    """
    return matrix if device == "cpu" else matrix.t().contiguous().t()


def dtype_name(tensor: Any) -> str:
    """Return torch's name of the dtype without its prefix: `float32`."""
    return str(tensor.dtype).split(".", 1)[1]


def hash_bytes(dtype: str, shape: Tuple[int, ...], data: bytes) -> Digest:
    """Return the digest of one tensor: over `DTYPE|D0,D1,...`, a line feed, and the bytes."""
    state = hashlib.sha256("{}|{}\n".format(dtype, ",".join(str(size) for size in shape)).encode("ascii"))
    state.update(data)
    return Digest.from_hex(state.hexdigest())


def hash_tensor(torch: Any, tensor: Any) -> Digest:
    """Return the digest of `tensor`."""
    return hash_bytes(dtype_name(tensor), tuple(tensor.shape), raw_bytes(torch, tensor))


def output_of(torch: Any, name: str, tensor: Any, samples: int = SAMPLES) -> Output:
    """Return `tensor` as an output with its digest and `samples` elements (0: all)."""
    data = raw_bytes(torch, tensor)
    output = Output(name, hash_bytes(dtype_name(tensor), tuple(tensor.shape), data))
    output.device = str(tensor.device)
    output.dtype = dtype_name(tensor)
    output.shape = tuple(tensor.shape)
    count = tensor.numel()
    output.stride = max(1, count // samples) if samples else 1
    width = tensor.element_size()
    picked = range(0, count, output.stride)
    if samples:
        picked = picked[:samples]
    output.sample = b"".join(data[i * width : (i + 1) * width] for i in picked).hex()
    if tensor.is_floating_point() and bool(torch.isnan(tensor).any()):
        one = torch.full_like(tensor, float("nan"))
        output.canonical = hash_tensor(torch, torch.where(torch.isnan(tensor), one, tensor))
    return output


class Maker:
    """The inputs of the suite as tensors on `device`, made once per process.

    `digest` covers all of them as generated; `changed` says which tensors no longer hold
    what the generator made: a bit that flipped in memory, or one flipped on request.
    """

    def __init__(self, torch: Any, device: str, inputs: Tuple[Input, ...]) -> None:
        self.torch = torch
        self.device = device
        self._tensors: Dict[str, Any] = {}
        self._hashes: Dict[str, str] = {}
        self._kept: List[bytearray] = []
        state = hashlib.sha256()
        for item in inputs:
            if item.name in self._tensors:
                raise ValueError("two inputs of one name: " + item.name)
            data = item.make()
            hashed = hashlib.sha256(data)
            state.update(item.header())
            state.update(hashed.digest())
            self._hashes[item.name] = hashed.hexdigest()
            self._kept.append(data)
            flat = torch.frombuffer(data, dtype=getattr(torch, item.dtype))
            self._tensors[item.name] = flat.reshape(item.shape).to(device)
        self.digest = Digest.from_hex(state.hexdigest())

    def get(self, name: str) -> Any:
        """Return the tensor of the input called `name`."""
        return self._tensors[name]

    def names(self) -> Tuple[str, ...]:
        return tuple(self._tensors)

    def flip(self, name: str, bit: int) -> None:
        """Flip bit `bit` (bit 0 of byte 0 first) of the tensor called `name`, in place."""
        tensor = self._tensors[name]
        flat = tensor.view(self.torch.uint8).reshape(-1)
        if not 0 <= bit < 8 * flat.numel():
            raise ValueError("{} has {} bits, there is no bit {}".format(name, 8 * flat.numel(), bit))
        flat[bit // 8] = int(flat[bit // 8]) ^ (1 << (bit % 8))

    def changed(self) -> List[str]:
        """Return the names of tensors that are no longer what the generator made."""
        return [
            name
            for name, tensor in self._tensors.items()
            if hashlib.sha256(raw_bytes(self.torch, tensor)).hexdigest() != self._hashes[name]
        ]
