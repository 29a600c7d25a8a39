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
#include <memory>

#include "panels.h"

namespace ffi = xla::ffi;

namespace promptrl {
namespace {

// Rows per pass over a panel.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = kSums / kVectors;
#else
constexpr int kRows = 6;
#endif

// Each type says how one word (4 bytes) of each of several outputs is multiplied
// by what a row has in its place: in `kParts` steps, each by one `X`.
struct Float32 {
  typedef float X;
  static constexpr int kParts = 1;
  static Floats Part(Words weights, int) { return (Floats)weights; }
  static Floats Add(Floats sum, Floats weights, float x) {
    return MulAdd(weights, All(x), sum);
  }
  // Makes `count` words of rows into `X`, or returns these words.
  static const X* Rows(const uint32_t* words, int64_t, std::unique_ptr<X[]>*) {
    return reinterpret_cast<const X*>(words);
  }
};

// A word holds two bfloat16 values; each is the upper half of a float32.
struct BFloat16 : Float32 {
  static constexpr int kParts = 2;
  static Floats Part(Words weights, int i) {
    return (Floats)(i == 0 ? weights << 16 : weights & 0xffff0000u);
  }
  static const X* Rows(const uint32_t* words, int64_t count,
                       std::unique_ptr<X[]>* wide) {
    wide->reset(new X[count * kParts]);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t parts[] = {words[i] << 16, words[i] & 0xffff0000u};
      std::memcpy(wide->get() + i * kParts, parts, sizeof(parts));
    }
    return wide->get();
  }
};

// The same by an instruction for pairs of them.
#if defined(__AVX512BF16__)
struct BFloat16Pairs {
  typedef uint32_t X;
  static constexpr int kParts = 1;
  static Words Part(Words weights, int) { return weights; }
  static Floats Add(Floats sum, Words weights, uint32_t x) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights,
                                    (__m512bh)(Words{} + x));
  }
  static const X* Rows(const uint32_t* words, int64_t, std::unique_ptr<X[]>*) {
    return words;
  }
};
#endif

// Multiplies R rows by V vectors of a panel.
template <typename Type, int R, int V>
__attribute__((noinline)) void Pass(const uint32_t* panel,
                                    const typename Type::X* x, float* out,
                                    int64_t words, int64_t n_size) {
  Floats sums[R][V] = {};
  for (int64_t k = 0; k < words; ++k, panel += kOutputs) {
    FetchAhead<V>(panel);
    for (int i = 0; i < Type::kParts; ++i) {
      decltype(Type::Part(Words{}, 0)) weights[V];
      for (int v = 0; v < V; ++v)
        weights[v] = Type::Part(Load<Words>(panel + v * kLanes), i);
      for (int r = 0; r < R; ++r) {
        const auto each = x[(r * words + k) * Type::kParts + i];
        for (int v = 0; v < V; ++v)
          sums[r][v] = Type::Add(sums[r][v], weights[v], each);
      }
    }
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
  std::unique_ptr<typename Type::X[]> wide;
  const auto* rows = Type::Rows(
      static_cast<const uint32_t*>(x.untyped_data()), m_size * words, &wide);
  float* sums = out->typed_data();
  ForEach(pool, threads, count, words, [=](int64_t i) {
    for (int64_t m = 0; m < m_size; m += kRows)
      AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
        constexpr int V = VectorsFor(few);
        for (int v = 0; v < kVectors; v += V)
          Pass<Type, few, V>(panel + i * kOutputs * words + v * kLanes,
                             rows + m * words * Type::kParts,
                             sums + m * n_size + i * kOutputs + v * kLanes,
                             words, n_size);
      });
  });
  return ffi::Error::Success();
}

ffi::Error FewRowsBFloat16(ffi::ThreadPool pool, int64_t threads,
                           ffi::Buffer<ffi::BF16> x,
                           ffi::Buffer<ffi::BF16> panels,
                           ffi::ResultBuffer<ffi::F32> out) {
#if defined(__AVX512BF16__)
  // Intel's processors start one every other cycle, a quarter of the rate of fused
  // multiply-adds, whose factors cost little to widen: 75 against 46 x 10^9
  // multiplications a second on a core of Emerald Rapids.
  if (!__builtin_cpu_is("intel"))
    return FewRows<BFloat16Pairs, ffi::BF16>(pool, threads, x, panels, out);
#endif
  return FewRows<BFloat16, ffi::BF16>(pool, threads, x, panels, out);
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
    few_rows_bfloat16, promptrl::FewRowsBFloat16,
    promptrl::Binding<ffi::BF16>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    few_rows_float32, (promptrl::FewRows<promptrl::Float32, ffi::F32>),
    promptrl::Binding<ffi::F32>());
