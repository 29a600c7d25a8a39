// Products with a packed kernel, which is stored in the order in which it is
// read. A decode step spends most of its time in these products.
//
//   panels [out / 32, in / d, 32, d]  bfloat16 (d = 2) or float32 (d = 1)
//   x      [rows, in]                 of the same type
//   out    [rows, out]                float32
//
// A kernel of 4 or 8 bits has a scale and a minimum for each output and block of
// 32 inputs:
//
//   codes  [out / 32, in / 32, bits, 32]  words of 32 bits
//   scales [out / 32, in / 32, 32]        float16, as words of 16 bits
//   mins   [out / 32, in / 32, 32]        likewise, or [0]: all are 0
//   x      [rows, in]                     bfloat16
//
// A weight is scale * code + min. Codes of 4 bits are unsigned, those of 8 bits
// signed; both are exact in bfloat16. The lower half of word w of a block holds
// 16 / bits even inputs and its upper half the odd ones behind them, from input
// 32 / bits * w on.
//
// A vector holds several outputs, so that no sum runs across its lanes, and the
// order of summation does not depend on the number of rows.

#include <algorithm>
#include <vector>

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

// Calls `one(i)` for each of `count` panels of `words` words per output.
template <typename One>
void ForPanels(ffi::ThreadPool pool, int64_t threads, int64_t count,
               int64_t words, One one) {
  // Each thread gets several parts, so that no thread waits long for the last.
  const int64_t size = (count + 4 * threads - 1) / (4 * threads);
  const bool is_large = count * words >= kWorthSharing;
  Share(pool, is_large ? threads : 1, (count + size - 1) / size,
        [=](int64_t part) {
          const int64_t end = std::min(count, (part + 1) * size);
          for (int64_t i = part * size; i < end; ++i) one(i);
        });
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
  ForPanels(pool, threads, count, words, [=](int64_t i) {
    for (int64_t m = 0; m < m_size; m += kRows)
      AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
        Rows<Type, few>(panel + i * kOutputs * words, rows + m * words,
                        sums + m * n_size + i * kOutputs, words, n_size);
      });
  });
  return ffi::Error::Success();
}

constexpr int kBlock = 32;  // inputs that share a scale

// The float32 values of float16 numbers. Those below 2^-14 are made by a
// subtraction, because the processor may be set to take small float32 for 0.
inline Floats OfFloat16(const uint16_t* from) {
  const Words x = __builtin_convertvector(Load<Halves>(from), Words);
  const Words bits = (x & 0x7fff) << 13, sign = (x & 0x8000) << 16;
  const Words normal = bits + (112u << 23);
  const Words above = bits + (113u << 23);
  const Words small =
      (Words)((Floats)above - (Floats)(Words{} + (113u << 23)));
  const Words is_small = (Words)(bits < (1u << 23));
  return (Floats)((small & is_small) | (normal & ~is_small) | sign);
}

// Two integers of up to 8 bits as a word of two bfloat16 values.
inline Words AsBFloat16(Ints even, Ints odd) {
  const Words low = (Words)__builtin_convertvector(even, Floats);
  const Words high = (Words)__builtin_convertvector(odd, Floats);
  return low >> 16 | (high & 0xffff0000u);
}

template <int kBits>
struct Codes;

template <>
struct Codes<4> {
  // Pair i of the four in a word.
  static Words Pair(Words word, int i) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    // The upper halves of 0.0 to 15.0; the fifth bit of an index is ignored.
    const __m512i table = _mm512_broadcast_i64x4(_mm256_setr_epi16(
        0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100,
        0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170));
    return (Words)_mm512_permutexvar_epi16(
        _mm512_srli_epi16((__m512i)word, 4 * i), table);
#else
    const Words codes = (word >> (4 * i)) & 0x000f000f;
    return AsBFloat16((Ints)(codes & 15), (Ints)(codes >> 16));
#endif
  }
};

template <>
struct Codes<8> {
  // Pair i of the two in a word.
  static Words Pair(Words word, int i) {
    return AsBFloat16((Ints)(word << (24 - 8 * i)) >> 24,
                      (Ints)(word << (8 - 8 * i)) >> 24);
  }
};

// Multiplies R rows by a panel of blocks; `x_sums` are the sums of each block of
// a row.
template <int kBits, int R>
__attribute__((noinline)) void BlockRows(
    const uint32_t* codes, const uint16_t* scales, const uint16_t* mins,
    const uint32_t* x, const float* x_sums, float* out, int64_t blocks,
    int64_t n_size) {
  constexpr int kPairs = 16 / kBits, kWords = kBlock / 2;
  Floats totals[R][kVectors] = {};
  for (int64_t b = 0; b < blocks; ++b, x += kWords) {
    Floats sums[R][kVectors] = {};
    for (int w = 0; w < kBits; ++w, codes += kOutputs)
      for (int v = 0; v < kVectors; ++v) {
        const Words word = Load<Words>(codes + v * kLanes);
        for (int i = 0; i < kPairs; ++i) {
          const Words pair = Codes<kBits>::Pair(word, i);
          for (int r = 0; r < R; ++r)
            sums[r][v] = BFloat16::Add(sums[r][v], pair,
                                       x[r * blocks * kWords + w * kPairs + i]);
        }
      }
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = b * kOutputs + v * kLanes;
      const Floats scale = OfFloat16(scales + at);
      for (int r = 0; r < R; ++r) totals[r][v] += sums[r][v] * scale;
      if (!mins) continue;
      const Floats min = OfFloat16(mins + at);
      for (int r = 0; r < R; ++r) totals[r][v] += min * x_sums[r * blocks + b];
    }
  }
  for (int r = 0; r < R; ++r)
    std::memcpy(out + r * n_size, totals[r], sizeof(totals[r]));
}

template <int kBits>
ffi::Error Blocks(ffi::ThreadPool pool, int64_t threads,
                  ffi::Buffer<ffi::BF16> x, ffi::Buffer<ffi::U32> codes,
                  ffi::Buffer<ffi::U16> scales, ffi::Buffer<ffi::U16> mins,
                  ffi::ResultBuffer<ffi::F32> out) {
  const int64_t m_size = x.dimensions()[0], count = codes.dimensions()[0];
  const int64_t blocks = codes.dimensions()[1], n_size = count * kOutputs;
  const uint32_t* rows = static_cast<const uint32_t*>(x.untyped_data());
  const uint32_t* code = codes.typed_data();
  const uint16_t* scale = scales.typed_data();
  const uint16_t* min = mins.element_count() ? mins.typed_data() : nullptr;
  std::vector<float> x_sums(min ? m_size * blocks : 0);
  for (size_t i = 0; i < x_sums.size(); ++i)
    for (int k = 0; k < kBlock / 2; ++k) {
      const uint32_t word = rows[i * kBlock / 2 + k];
      for (const uint32_t bits : {word << 16, word & 0xffff0000u}) {
        float value;
        std::memcpy(&value, &bits, sizeof(value));
        x_sums[i] += value;
      }
    }
  const float* sums = x_sums.data();
  float* to = out->typed_data();
  ForPanels(pool, threads, count, blocks * kBlock / 2, [=](int64_t i) {
    const int64_t at = i * blocks * kOutputs;
    for (int64_t m = 0; m < m_size; m += kRows)
      AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
        BlockRows<kBits, few>(code + at * kBits, scale + at,
                              min ? min + at : nullptr,
                              rows + m * blocks * kBlock / 2, sums + m * blocks,
                              to + m * n_size + i * kOutputs, blocks, n_size);
      });
  });
  return ffi::Error::Success();
}

auto BlocksBinding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<int64_t>("threads")
      .Arg<ffi::Buffer<ffi::BF16>>()
      .Arg<ffi::Buffer<ffi::U32>>()
      .Arg<ffi::Buffer<ffi::U16>>()
      .Arg<ffi::Buffer<ffi::U16>>()
      .Ret<ffi::Buffer<ffi::F32>>();
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
XLA_FFI_DEFINE_HANDLER_SYMBOL(few_rows_4_bits, promptrl::Blocks<4>,
                              promptrl::BlocksBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(few_rows_8_bits, promptrl::Blocks<8>,
                              promptrl::BlocksBinding());
