"""Codecs: sizes, round trips, bounds on the error, and bytes without copies."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from optim.codec import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    RAW,
    SIGN,
    TABLE,
    Codec,
    Form,
    Projection,
    decode_over,
    fits,
    make,
    readable,
    writable,
)
from optim.kinds import Kind
from topology import SpecError


def round_trip(codec: Codec, x: torch.Tensor) -> torch.Tensor:
    data = torch.full((codec.nbytes(x.numel(), x.dtype),), 255, dtype=torch.uint8)
    if isinstance(codec, Projection):
        codec.begin(data, x.numel(), 1, None)
    codec.encode(x, data)
    return codec.decode(data, torch.zeros_like(x))


values = st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40)


def test_the_table_is_by_name() -> None:
    assert set(TABLE) == {"raw", "float32", "float16", "bfloat16", "int8", "int4", "sign"}
    for name in [*TABLE, "top-k:100", "random-k:2", "low-rank:16"]:
        assert make(name).name == name


@pytest.mark.parametrize(
    "name", ["", "int9", "top-k", "top-k:", "top-k:1", "top-k:1001", "low-rank:0", "low-rank:-1", "sign:2"]
)
def test_a_name_that_is_no_codec_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(SpecError, match=r"top-k:N|expected"):
        make(name)


@pytest.mark.parametrize(
    ("codec", "elements", "dtype", "nbytes"),
    [
        (RAW, 5, torch.float32, 20), (RAW, 5, torch.float64, 40), (RAW, 5, torch.int64, 40), (RAW, 5, torch.bool, 5),
        (FLOAT16, 5, torch.float32, 10), (BFLOAT16, 5, torch.float64, 10),
        (INT8, 1, torch.float32, 8), (INT8, 1024, torch.float32, 1028), (INT8, 1025, torch.float32, 1036),
        (INT8, 65536, torch.float32, 65792), (FLOAT32, 5, torch.float64, 20),
        (INT4, 1, torch.float32, 132), (INT4, 256, torch.float32, 132), (INT4, 257, torch.float32, 264),
        (INT4, 65536, torch.float32, 33792),
        (SIGN, 1, torch.float32, 8), (SIGN, 1025, torch.float32, 140), (SIGN, 65536, torch.float32, 8448),
        (make("top-k:100"), 1, torch.float32, 8), (make("top-k:100"), 100, torch.float32, 8),
        (make("top-k:100"), 65536, torch.float32, 3936), (make("top-k:100"), 65637, torch.float32, 3948),
        (make("random-k:100"), 1, torch.float64, 12), (make("random-k:100"), 65536, torch.float32, 2632),
        (make("low-rank:1"), 1, torch.float32, 12), (make("low-rank:1"), 65536, torch.float32, 2052),
        (make("low-rank:2"), 65537, torch.float32, 4104), (make("low-rank:2"), 10, torch.float32, 56),
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


LOSSY = [FLOAT16, BFLOAT16, INT8, INT4, SIGN, make("top-k:2"), make("random-k:2"), make("low-rank:1")]


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("extreme", [3.4e38, -3.4e38, 65520.0, 1e-45, 0.0])
def test_finite_values_decode_to_finite_ones(codec: Codec, extreme: float) -> None:
    x = torch.tensor([extreme, 1.0, -extreme])
    assert torch.isfinite(round_trip(codec, x)).all()


@pytest.mark.parametrize(
    ("codec", "left"),
    [(INT4, 0.1), (SIGN, 0.6), (make("top-k:10"), 0.9), (make("top-k:1000"), 0.999)],
)  # fmt: skip
@given(seed=st.integers(0, 999), elements=st.integers(1, 3000))
def test_a_codec_for_changes_contracts(codec: Codec, left: float, seed: int, elements: int) -> None:
    """Of normal numbers `left` of the squared norm remains at most; int4 and signs of all numbers contract too, by less."""
    assert codec.form is Form.CHANGES
    x = torch.randn(elements, generator=torch.Generator().manual_seed(seed))
    lost = float((x - round_trip(codec, x)).square().sum())
    assert lost <= (left if elements >= 500 else 1 - 1e-6) * float(x.square().sum()) * 1.0001 + 1e-12


@given(values)
def test_int4_is_within_half_a_level(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float32)
    level = max(float(x.abs().max()) / 7, 1.2e-38)
    assert float((round_trip(INT4, x) - x).abs().max()) <= level * 0.5001


@given(values, st.sampled_from([torch.float32, torch.float64]))
def test_signs_lose_what_the_formula_says(numbers: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor(numbers, dtype=dtype)
    lost = float((round_trip(SIGN, x).double() - x.double()).square().sum())
    norm, sum = float(x.double().square().sum()), float(x.double().abs().sum())
    assert lost == pytest.approx(norm - sum**2 / len(numbers), abs=1e-5 * norm)


def test_signs_are_numpys_across_groups() -> None:
    x = torch.randn(2500, generator=torch.Generator().manual_seed(1))
    scales = np.concatenate([np.full(len(part), np.abs(part).mean()) for part in np.split(x.numpy(), [1024, 2048])])
    np.testing.assert_allclose(round_trip(SIGN, x).numpy(), np.where(x.numpy() < 0, -scales, scales), rtol=1e-5)


@pytest.mark.parametrize("elements", [1, 37, 65536, 65536 + 150])
def test_top_k_keeps_the_largest_exactly(elements: int) -> None:
    x = torch.randn(elements, generator=torch.Generator().manual_seed(1))
    expected = np.zeros(elements, np.float32)
    for lo in range(0, elements, 65536):
        part = x.numpy()[lo : lo + 65536]
        best = lo + np.argsort(-np.abs(part))[: -(-len(part) // 10)]
        expected[best] = x.numpy()[best]
    assert np.array_equal(round_trip(make("top-k:10"), x).numpy(), expected)


def test_a_place_that_is_not_there_shows() -> None:
    codec = make("top-k:2")
    data = torch.zeros(codec.nbytes(4, torch.float32), dtype=torch.uint8)
    data[:2].view(torch.uint16)[0] = 4
    assert not torch.isfinite(codec.decode(data, torch.empty(4))).any()


def exchange(codec: Projection, x: torch.Tensor, y: torch.Tensor, seed: int, last: torch.Tensor | None) -> torch.Tensor:
    """One swap between x and y at one half, in place; the answer's piece."""
    ask, answer = (torch.zeros(codec.nbytes(x.numel(), x.dtype), dtype=torch.uint8) for _ in range(2))
    codec.begin(ask, x.numel(), seed, last)
    codec.encode(x, ask)
    codec.follow(ask, answer, x.numel())
    codec.encode((decode_over(codec, ask, torch.empty_like(y), y) - y) / 2, answer)
    change = decode_over(codec, answer, torch.empty_like(y))
    x.sub_(change)
    y.add_(change)
    return answer


@pytest.mark.parametrize("name", ["random-k:2", "random-k:7", "low-rank:1", "low-rank:3"])
@given(seed=st.integers(0, 2**63 - 1), elements=st.integers(1, 200))
def test_a_part_is_a_projection(name: str, seed: int, elements: int) -> None:
    """What is not of the part stays; of the part nothing is left; and the pair comes closer by just that."""
    codec = make(name)
    assert isinstance(codec, Projection) and codec.form is Form.PART
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(elements, generator=draw, dtype=torch.float64) for _ in range(2))
    mean, before = (x + y) / 2, x - y
    exchange(codec, x, y, seed, None)
    torch.testing.assert_close((x + y) / 2, mean, rtol=0, atol=1e-12)
    part = before - (x - y)
    assert float(part @ (x - y)) == pytest.approx(0, abs=1e-5 * (1 + float(before @ before)))
    assert float(before @ before) == pytest.approx(float(part @ part + (x - y) @ (x - y)), rel=1e-5, abs=1e-5)


def test_random_places_reach_every_element_evenly_and_follow_the_seed() -> None:
    codec, hits = make("random-k:10"), torch.zeros(95)
    assert isinstance(codec, Projection)
    for seed in range(2000):
        data = torch.zeros(codec.nbytes(95, torch.float32), dtype=torch.uint8)
        codec.begin(data, 95, seed, None)
        codec.encode(torch.ones(95), data)
        hits += codec.decode(data, torch.zeros(95))
    assert torch.equal(hits.sum(), torch.tensor(2000.0 * 10))
    assert float(hits[:90].min()) > 140 and float(hits[:90].max()) < 260  # 200 expected; 5 places share the last stretch
    assert float(hits[90:].min()) > 320 and float(hits[90:].max()) < 480


def test_low_rank_finds_the_directions_of_a_difference() -> None:
    """A difference of rank 2 between two models is gone after a few exchanges of rank 2, which random directions don't see."""
    codec, draw = make("low-rank:2"), torch.Generator().manual_seed(1)
    assert isinstance(codec, Projection)
    low = torch.randn(64, 2, generator=draw) @ torch.randn(2, 64, generator=draw)
    x = torch.randn(4096, generator=draw)
    y = x + low.view(-1)
    answer, left = None, []
    for seed in range(4):
        answer = exchange(codec, x, y, seed, answer)
        left.append(float((x - y).norm() / low.norm()))
    assert left[0] > 0.5
    assert left[-1] < 1e-4


def test_what_is_over_beside_the_matrix_is_exact() -> None:
    codec, x, y = make("low-rank:1"), torch.zeros(11), torch.ones(11)  # 3 x 3 and two more
    assert isinstance(codec, Projection)
    exchange(codec, x, y, 1, None)
    assert x[9:].tolist() == y[9:].tolist() == [0.5, 0.5]


def test_a_double_beyond_float32_stays_finite() -> None:
    for codec in (FLOAT16, BFLOAT16, INT8):
        assert torch.isfinite(round_trip(codec, torch.tensor([1e300, -1e300], dtype=torch.float64))).all()


@pytest.mark.parametrize(
    "codec", [FLOAT16, BFLOAT16, INT8, INT4, SIGN, make("top-k:2"), make("random-k:2"), make("low-rank:1")]
)
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
        (FLOAT16, Kind.SIGNED, torch.float64, True), (FLOAT32, Kind.MOMENTS, torch.float64, True),
        (INT4, Kind.MOMENTS, torch.float32, False), (SIGN, Kind.NONNEGATIVE, torch.float32, False),
        (make("random-k:2"), Kind.NONNEGATIVE, torch.float32, False), (make("low-rank:1"), Kind.COUNTER, torch.float32, False),
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
