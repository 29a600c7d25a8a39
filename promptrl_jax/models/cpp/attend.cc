// Attention of one token per row to a key-value cache. The function does not
// read cache slots before the first and after the last unmasked one of a block.
//
//   queries [B, K, U, H]      already scaled
//   keys    [B, K, X, H, W]   X blocks of W cache slots
//   values  [B, K, X, W, H]
//   mask    [B, X * W]        bool; at least one value of each row is true
//   out     [B, K, U, H]
//
// All arrays except the mask are float32; H and W are multiples of 16.

#include <algorithm>
#include <vector>

#include "native.h"

namespace ffi = xla::ffi;

namespace promptrl {
namespace {

constexpr float kNever = -1e30f;
// A second thread pays off if the keys hold at least this many numbers.
constexpr int64_t kWorthSharing = 1 << 19;

// Computes exp(x) of x <= 0 as 2^n e^r with |r| <= ln 2 / 2. The series up to
// r^6 has a relative error of 2e-7. Below -87 the result is 0, where exp(x) is
// close to the smallest float32.
inline Floats Exp(Floats x) {
  const Floats zero = {};
  const Ints is_small = x < zero - 87.0f;
  x = (Floats)((Ints)x & ~is_small);
  const Floats shift = zero + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Floats n = (x * 1.44269504f + shift) - shift;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Floats sum = zero + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  return (Floats)((Ints)(sum * (Floats)power) & ~is_small);
}

// `AddRows` for the first V vectors of columns.
template <int V>
__attribute__((noinline)) void AddColumns(const float* factors,
                                          const float* rows, int64_t count,
                                          int64_t stride, float* to) {
  Floats sums[V];
  std::memcpy(sums, to, sizeof(sums));
  for (int64_t i = 0; i < count; ++i)
    for (int v = 0; v < V; ++v)
      sums[v] += factors[i] * Load<Floats>(rows + i * stride + v * kLanes);
  std::memcpy(to, sums, sizeof(sums));
}

// Adds the sum over i < count of factors[i] * rows[i * stride + j] to to[j], for
// the columns j in [from, end), in whole vectors. It processes as many vectors
// at once as registers hold, because long contiguous reads are fastest.
void AddRows(const float* factors, const float* rows, int64_t count,
             int64_t stride, int64_t from, int64_t end, float* to) {
  const int64_t vectors = (end - from) / kLanes;
  const int64_t passes = (vectors + kSums - 1) / kSums;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t first = i * vectors / passes;
    const int64_t j = from + first * kLanes;
    AsConstant<kSums>((i + 1) * vectors / passes - first, [=](auto some) {
      AddColumns<some>(factors, rows + j, count, stride, to + j);
    });
  }
}

// The cache slots of a block that are read: from the first to the last unmasked
// slot, rounded to whole vectors.
struct Range {
  int64_t from, to;
};

Range Visible(const bool* mask, int64_t width) {
  int64_t from = 0, to = width;
  while (from < width && !mask[from]) ++from;
  if (from == width) return {0, 0};
  while (!mask[to - 1]) --to;
  return {from / kLanes * kLanes, (to + kLanes - 1) / kLanes * kLanes};
}

ffi::Error Attend(ffi::ThreadPool pool, int64_t threads,
                  ffi::Buffer<ffi::F32> queries, ffi::Buffer<ffi::F32> keys,
                  ffi::Buffer<ffi::F32> values, ffi::Buffer<ffi::PRED> mask,
                  ffi::ResultBuffer<ffi::F32> out) {
  const auto shape = keys.dimensions();
  const int64_t rows = shape[0], heads = shape[1], blocks = shape[2];
  const int64_t h_size = shape[3], width = shape[4];
  const int64_t group = queries.dimensions()[2], slots = blocks * width;
  const float *q = queries.typed_data(), *k = keys.typed_data();
  const float* v = values.typed_data();
  const bool* visible = mask.typed_data();
  float* to = out->typed_data();
  const auto one = [=](int64_t i) {
    const bool* seen = visible + i / heads * slots;
    thread_local std::vector<float> scores;
    thread_local std::vector<Range> ranges;
    scores.resize(slots);
    ranges.resize(blocks);
    for (int64_t c = 0; c < blocks; ++c)
      ranges[c] = Visible(seen + c * width, width);
    for (int64_t g = 0; g < group; ++g) {
      const float* query = q + (i * group + g) * h_size;
      float most = kNever;
      for (int64_t c = 0; c < blocks; ++c) {
        const auto [begin, end] = ranges[c];
        float* of_block = scores.data() + c * width;
        std::fill(of_block + begin, of_block + end, 0.0f);
        AddRows(query, k + (i * blocks + c) * h_size * width, h_size, width,
                begin, end, of_block);
        for (int64_t w = begin; w < end; ++w) {
          of_block[w] = seen[c * width + w] ? of_block[w] : kNever;
          most = std::max(most, of_block[w]);
        }
      }
      float* result = to + (i * group + g) * h_size;
      std::fill(result, result + h_size, 0.0f);
      Floats total = {};
      for (int64_t c = 0; c < blocks; ++c) {
        const auto [begin, end] = ranges[c];
        float* of_block = scores.data() + c * width;
        for (int64_t w = begin; w < end; w += kLanes) {
          const Floats weights = Exp(Load<Floats>(of_block + w) - most);
          std::memcpy(of_block + w, &weights, sizeof(weights));
          total += weights;
        }
        AddRows(of_block + begin,
                v + ((i * blocks + c) * width + begin) * h_size, end - begin,
                h_size, 0, h_size, result);
      }
      float sum = 0;
      for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
      // The result of a row without unmasked slots stays 0.
      if (sum != 0)
        for (int64_t h = 0; h < h_size; ++h) result[h] /= sum;
    }
  };
  const bool is_large = rows * heads * slots * h_size >= kWorthSharing;
  Share(pool, is_large ? threads : 1, rows * heads, one);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace promptrl

XLA_FFI_DEFINE_HANDLER_SYMBOL(attend, promptrl::Attend,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
