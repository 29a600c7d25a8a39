// Products with a packed kernel, which is stored in the order in which it is
// read. A decode step spends most of its time in these products.
//
//   panels [out / 32, in / d, 32, d]  bfloat16 (d = 2) or float32 (d = 1)
//   x      [rows, in]                 of the same type
//   out    [rows, out]                float32
//
// A vector holds several outputs, so that no sum runs across its lanes, and the
// order of summation does not depend on the number of rows.

#include <algorithm>

#include "native.h"
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace ffi = xla::ffi;

namespace promptrl {
namespace {

constexpr int kOutputs = 32;  // outputs per panel
// A second thread pays off if all panels hold at least 32 times this many
// words.
constexpr int64_t kWorthSharing = 1 << 12;
constexpr int kVectors = kOutputs / kLanes;
constexpr int kRows = kSums / kVectors;  // rows per pass over a panel

// Both functions take one word (4 bytes) of each of several outputs and the word
// of a row that is multiplied by all of them.
struct Float32 {
  static Floats Add(Floats sum, Words weights, uint32_t x) {
    return sum + (Floats)weights * (Floats)(Words{} + x);
  }
};

struct BFloat16 {
  // A word holds two bfloat16 values; each is the upper half of a float32.
  static Floats Add(Floats sum, Words weights, uint32_t x) {
    const Words each = Words{} + x;
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights,
                                    (__m512bh)each);
#else
    sum += (Floats)(weights << 16) * (Floats)(each << 16);
    return sum + (Floats)(weights & 0xffff0000u) *
                     (Floats)(each & 0xffff0000u);
#endif
  }
};

template <typename Type, int R>
__attribute__((noinline)) void Rows(const uint32_t* panel, const uint32_t* x,
                                    float* out, int64_t words,
                                    int64_t n_size) {
  Floats sums[R][kVectors] = {};
  for (int64_t k = 0; k < words; ++k, panel += kOutputs)
    for (int v = 0; v < kVectors; ++v) {
      const Words weights = Load<Words>(panel + v * kLanes);
      for (int r = 0; r < R; ++r)
        sums[r][v] = Type::Add(sums[r][v], weights, x[r * words + k]);
    }
  for (int r = 0; r < R; ++r)
    std::memcpy(out + r * n_size, sums[r], sizeof(sums[r]));
}

template <typename Type, ffi::DataType kType>
ffi::Error FewRows(ffi::ThreadPool pool, int64_t threads,
                   ffi::Buffer<kType> x, ffi::Buffer<kType> panels,
                   ffi::ResultBuffer<ffi::F32> out) {
  const int64_t m_size = x.dimensions()[0], count = panels.dimensions()[0];
  const int64_t n_size = count * kOutputs, words = panels.dimensions()[1];
  const uint32_t* panel = static_cast<const uint32_t*>(panels.untyped_data());
  const uint32_t* rows = static_cast<const uint32_t*>(x.untyped_data());
  float* sums = out->typed_data();
  // Each thread gets several parts, so that no thread waits long for the last.
  const int64_t size = (count + 4 * threads - 1) / (4 * threads);
  const auto some = [=](int64_t part) {
    const int64_t end = std::min(count, (part + 1) * size);
    for (int64_t i = part * size; i < end; ++i)
      for (int64_t m = 0; m < m_size; m += kRows)
        AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
          Rows<Type, few>(panel + i * kOutputs * words, rows + m * words,
                          sums + m * n_size + i * kOutputs, words, n_size);
        });
  };
  const bool is_large = count * words >= kWorthSharing;
  Share(pool, is_large ? threads : 1, (count + size - 1) / size, some);
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto Binding() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Attr<int64_t>("threads")
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<ffi::F32>>();
}

}  // namespace
}  // namespace promptrl

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    few_rows_bfloat16, (promptrl::FewRows<promptrl::BFloat16, ffi::BF16>),
    promptrl::Binding<ffi::BF16>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    few_rows_float32, (promptrl::FewRows<promptrl::Float32, ffi::F32>),
    promptrl::Binding<ffi::F32>());
