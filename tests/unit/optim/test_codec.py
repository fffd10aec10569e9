"""Codecs: sizes, round trips, bounds on the error, and bytes without copies."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from optim.codec import BFLOAT16, FLOAT16, INT8, RAW, TABLE, Codec, fits, readable, writable
from optim.kinds import Kind


def round_trip(codec: Codec, x: torch.Tensor) -> torch.Tensor:
    data = torch.full((codec.nbytes(x.numel(), x.dtype),), 255, dtype=torch.uint8)
    codec.encode(x, data)
    return codec.decode(data, torch.empty_like(x))


values = st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40)


def test_the_table_is_by_name() -> None:
    assert set(TABLE) == {"raw", "float16", "bfloat16", "int8"}
    assert all(codec.name == name for name, codec in TABLE.items())


@pytest.mark.parametrize(
    ("codec", "elements", "dtype", "nbytes"),
    [
        (RAW, 5, torch.float32, 20), (RAW, 5, torch.float64, 40), (RAW, 5, torch.int64, 40), (RAW, 5, torch.bool, 5),
        (FLOAT16, 5, torch.float32, 10), (BFLOAT16, 5, torch.float64, 10),
        (INT8, 1, torch.float32, 8), (INT8, 1024, torch.float32, 1028), (INT8, 1025, torch.float32, 1036),
        (INT8, 65536, torch.float32, 65792),
    ],
)  # fmt: skip
def test_sizes(codec: Codec, elements: int, dtype: torch.dtype, nbytes: int) -> None:
    assert codec.nbytes(elements, dtype) == nbytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int16, torch.uint8, torch.bool])
def test_raw_is_exact_and_decodes_without_a_copy(dtype: torch.dtype) -> None:
    x = torch.arange(7).to(dtype)
    data = torch.zeros(RAW.nbytes(7, dtype), dtype=torch.uint8)
    RAW.encode(x, data)
    decoded = RAW.decode(data, torch.empty_like(x))
    assert torch.equal(decoded, x)
    assert decoded.data_ptr() == data.data_ptr()


@given(values)
def test_half_is_numpys_cast_but_saturates(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float32)
    with np.errstate(over="ignore"):
        expected = np.clip(x.numpy().astype(np.float16), -65504, 65504).astype(np.float32)
    assert np.array_equal(round_trip(FLOAT16, x).numpy(), expected)
    assert torch.equal(round_trip(BFLOAT16, x), x.bfloat16().float())


@given(values, st.sampled_from([torch.float32, torch.float64]))
def test_int8_is_within_half_a_level(numbers: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor(numbers, dtype=dtype)
    level = max(float(x.abs().max()) / 127, 1.2e-38)
    assert float((round_trip(INT8, x) - x).abs().max()) <= level * 0.5001


def test_int8_scales_each_group_by_itself() -> None:
    x = torch.cat([torch.full((1024,), 1000.0), torch.linspace(-1, 1, 1024), torch.tensor([1e-30, -1e-30])])
    error = (round_trip(INT8, x) - x).abs()
    assert float(error[:1024].max()) < 1e-3
    assert float(error[1024:2048].max()) <= 0.5001 / 127
    assert float(error[2048:].max()) < 1e-32


def test_int8_pads_with_zeros() -> None:
    data = torch.full((INT8.nbytes(5, torch.float32),), 255, dtype=torch.uint8)
    INT8.encode(torch.ones(5), data)
    assert data[9:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("codec", [FLOAT16, BFLOAT16, INT8])
@pytest.mark.parametrize("extreme", [3.4e38, -3.4e38, 65520.0, 1e-45, 0.0])
def test_finite_values_decode_to_finite_ones(codec: Codec, extreme: float) -> None:
    x = torch.tensor([extreme, 1.0, -extreme])
    assert torch.isfinite(round_trip(codec, x)).all()


def test_a_double_beyond_float32_stays_finite() -> None:
    for codec in (FLOAT16, BFLOAT16, INT8):
        assert torch.isfinite(round_trip(codec, torch.tensor([1e300, -1e300], dtype=torch.float64))).all()


@pytest.mark.parametrize("codec", [FLOAT16, BFLOAT16, INT8])
def test_a_stranger_can_send_what_is_not_finite_and_it_shows(codec: Codec) -> None:
    data = torch.full((codec.nbytes(4, torch.float32),), 255, dtype=torch.uint8)
    assert not torch.isfinite(codec.decode(data, torch.empty(4))).all()


@pytest.mark.parametrize(
    ("codec", "kind", "dtype", "fit"),
    [
        (RAW, Kind.NEWEST, torch.int64, True), (RAW, Kind.NONNEGATIVE, torch.float32, True),
        (BFLOAT16, Kind.NONNEGATIVE, torch.float32, True), (FLOAT16, Kind.NONNEGATIVE, torch.float32, False),
        (INT8, Kind.NONNEGATIVE, torch.float32, False), (BFLOAT16, Kind.COUNTER, torch.float32, False),
        (INT8, Kind.NEWEST, torch.int64, False), (INT8, Kind.PARAMETER, torch.float32, True),
        (FLOAT16, Kind.SIGNED, torch.float64, True),
    ],
)  # fmt: skip
def test_what_fits(codec: Codec, kind: Kind, dtype: torch.dtype, fit: bool) -> None:
    assert fits(codec, kind, dtype) is fit


def test_received_bytes_become_a_tensor_without_copy_or_warning() -> None:
    data = memoryview(bytes(range(40)))
    tensor = readable(data)
    assert tensor.data_ptr() == np.frombuffer(data, np.uint8).ctypes.data
    assert tensor.tolist() == list(range(40))


def test_received_bytes_outlive_their_owner() -> None:
    tensor = readable(memoryview(np.arange(1000, dtype=np.float32).tobytes()))
    assert float(tensor.view(torch.float32).sum()) == 499500


def test_misaligned_bytes_are_read_rightly() -> None:
    data = memoryview(b"x" + np.arange(6, dtype=np.float32).tobytes())[1:]
    assert RAW.decode(readable(data), torch.empty(6)).add(1).tolist() == [1, 2, 3, 4, 5, 6]


def test_a_tensor_is_sent_from_its_own_memory() -> None:
    x = torch.arange(3, dtype=torch.float32)
    view = writable(x)
    x[0] = math.pi
    assert len(view) == 12
    assert np.frombuffer(view, np.float32)[0] == np.float32(math.pi)
