"""Room in memory of the CPU for what is being saved while the next steps are made.

What may live here: making that room, and copying tensors to it beside the work of a GPU. A GPU
copies to page-locked memory without the CPU, on a stream of its own; what changes the tensors next
has to come after that (`settle`), and who reads the copy has to wait for it (`wait`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

_LARGE = 1 << 20  # bytes: such memory has its pages for itself (glibc maps it)
_PORTABLE = 1  # cudaHostRegisterPortable


class Staging:
    """Copies of one tree of tensors after another, all in the same room."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._cuda else None  # type: ignore[no-untyped-call]
        self._copied: torch.cuda.Event | None = None
        self._settled = True

    def room(self, tensors: Any) -> Any:
        """A tree of the same shape (dictionaries, tensors, others as they are) in memory of the
        CPU. Page-locked memory takes seconds for some GB."""
        if isinstance(tensors, dict):
            return {key: self.room(inner) for key, inner in tensors.items()}
        if not isinstance(tensors, Tensor):
            return tensors
        own = local(tensors)
        empty = self._empty(own.shape, own.dtype)
        if isinstance(tensors, DTensor):
            return DTensor(empty, tensors._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        return empty

    def _empty(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Page-locked where there is a GPU. To allocate it so holds up the kernels that the steps
        launch meanwhile, for as long as the system takes to find the pages: large tensors get
        theirs before they are locked."""
        if not self._cuda:
            return torch.empty(shape, dtype=dtype)
        with torch.cuda.device(self._device):  # of this thread
            if shape.numel() * dtype.itemsize < _LARGE:
                return torch.empty(shape, dtype=dtype, pin_memory=True)
            empty = torch.empty(shape, dtype=dtype).zero_()
            library: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            library.cudaHostRegister(empty.data_ptr(), empty.nbytes, _PORTABLE)
        return empty  # where it could not be locked, copies take longer

    def copy(self, tensors: Any, room: Any) -> None:
        """Copies to the room, maybe later than this returns."""
        if self._stream is None:
            return _copy(tensors, room)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            _copy(tensors, room)
            self._copied = self._stream.record_event()
        self._settled = False

    def settle(self) -> None:
        """Whatever the GPU is given from now on comes after the copy. Waits for nothing here."""
        if not self._settled and self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)
            self._settled = True

    def wait(self) -> None:
        """Waits until the room holds what was to be copied."""
        if self._copied is not None:
            self._copied.synchronize()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, in the same memory."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _copy(value: Any, into: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _copy(inner, into[key])
    elif isinstance(value, Tensor):
        local(into).copy_(local(value), non_blocking=True)
