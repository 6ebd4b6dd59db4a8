"""What a reader of one's own implements."""

from abc import ABC, abstractmethod
from typing import Any


class media_ext_reader_op_impl(ABC):
    @abstractmethod
    def __init__(self, params: Any, fw_params: Any) -> None: ...
    @abstractmethod
    def __iter__(self) -> Any: ...
    @abstractmethod
    def __next__(self) -> Any: ...
    @abstractmethod
    def gen_output_info(self) -> Any: ...
    @abstractmethod
    def get_largest_file(self) -> Any: ...
    @abstractmethod
    def get_media_output_type(self) -> Any: ...
    @abstractmethod
    def __len__(self) -> int: ...


class media_ext_reader_op_tensor_info:
    def __init__(self, dtype: Any, shape: Any, layout: Any) -> None:
        self.dtype, self.shape, self.layout = dtype, shape, layout
