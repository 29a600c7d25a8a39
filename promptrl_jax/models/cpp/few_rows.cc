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
//   x      [rows, in]                     float32
//
// A weight is scale * code + min, and stored codes of 8 bits are 128 more, so that
// none is negative. Word w of a block has the codes of 32 / bits inputs, from the
// first of these on: byte k has input k, and with 4 bits input k + 4 in its
// upper half. Each 32 numbers of a row are rounded to 8 bits, so that products are
// those of bytes.
//
// A vector holds several outputs, so that no sum runs across its lanes, and the
// order of summation does not depend on the number of rows.

#include <algorithm>
#include <memory>

#include "native.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace ffi = xla::ffi;

namespace promptrl {
namespace {

constexpr int kOutputs = 32;  // outputs per panel
// A second thread pays off if all panels, each of 32 outputs, hold at least 32 times
// this many words.
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

// Calls `one(i)` for each of `count` panels of `words` words per output, or rows of
// so many words.
template <typename One>
void ForEach(ffi::ThreadPool pool, int64_t threads, int64_t count,
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
  ForEach(pool, threads, count, words, [=](int64_t i) {
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
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)Load<Halves>(from));
#else
  const Words x = __builtin_convertvector(Load<Halves>(from), Words);
  const Words bits = (x & 0x7fff) << 13, sign = (x & 0x8000) << 16;
  const Words normal = bits + (112u << 23);
  const Words above = bits + (113u << 23);
  const Words small =
      (Words)((Floats)above - (Floats)(Words{} + (113u << 23)));
  const Words is_small = (Words)(bits < (1u << 23));
  return (Floats)((small & is_small) | (normal & ~is_small) | sign);
#endif
}

// Adds the products of four codes and four numbers of a row, for each of several
// outputs: codes are unsigned bytes of a word, numbers are signed ones.
#if defined(__AVX512VNNI__)
typedef int32_t Sum;
typedef Ints Sums;
constexpr int kBlockRows = 6;  // whose sums and totals fit into registers
inline Sums AddBytes(Sums sum, Words codes, uint32_t x) {
  return (Sums)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes,
                                   (__m512i)(Words{} + x));
}
inline Floats AsFloats(Sums sum) {
  return __builtin_convertvector(sum, Floats);
}
#else
typedef float Sum;  // of integers below 2^24, so that it is exact
typedef Floats Sums;
constexpr int kBlockRows = kRows;
inline Sums AddBytes(Sums sum, Words codes, uint32_t x) {
  for (int i = 0; i < 4; ++i)
    sum += __builtin_convertvector((Ints)(codes >> (8 * i) & 255), Floats) *
           (float)(int8_t)(x >> (8 * i));
  return sum;
}
inline Floats AsFloats(Sums sum) { return sum; }
#endif

// Rows in 8 bits: of each block of 32 numbers, the largest becomes 127.
struct Rounded {
  explicit Rounded(int64_t blocks)
      : words(new uint32_t[blocks * kBlock / 4]),
        starts(new Sum[blocks]),
        scales(new float[blocks]),
        sums(new float[blocks]) {}

  // Rounds a block. `offset` is what codes of weights have been increased by.
  void Set(int64_t block, const float* x, int offset) const {
    int32_t most = 0;  // Positive numbers are ordered as their bits are.
    for (int k = 0; k < kBlock; ++k) {
      int32_t bits;
      std::memcpy(&bits, x + k, sizeof(bits));
      most = std::max(most, bits & 0x7fffffff);
    }
    float largest;
    std::memcpy(&largest, &most, sizeof(largest));
    const float factor = largest > 0 ? 127 / largest : 0;
    int8_t codes[kBlock];
    int32_t sum = 0;
    for (int k = 0; k < kBlock; ++k) {
      const float shift = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
      codes[k] = (int8_t)((x[k] * factor + shift) - shift);
      sum += codes[k];
    }
    std::memcpy(words.get() + block * kBlock / 4, codes, kBlock);
    starts[block] = -offset * sum;
    scales[block] = largest / 127;
    sums[block] = scales[block] * sum;
  }

  std::unique_ptr<uint32_t[]> words;   // four numbers each
  std::unique_ptr<Sum[]> starts;       // of a block's integer sum
  std::unique_ptr<float[]> scales;     // of a block
  std::unique_ptr<float[]> sums;       // of a block, scaled
};

// Multiplies R rows by a panel of blocks.
template <int kBits, int R>
__attribute__((noinline)) void BlockRows(
    const uint32_t* codes, const uint16_t* scales, const uint16_t* mins,
    const Rounded& x, int64_t row, float* out, int64_t blocks,
    int64_t n_size) {
  constexpr int kWords = kBlock / 4, kPieces = 8 / kBits;
  Floats totals[R][kVectors] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = row * blocks + b;
    const uint32_t* words = x.words.get() + first * kWords;
    Sums sums[R][kVectors];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = Sums{} + x.starts[first + r * blocks];
    for (int w = 0; w < kBits; ++w, codes += kOutputs)
      for (int i = 0; i < kPieces; ++i) {
        Words pieces[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          pieces[v] = Load<Words>(codes + v * kLanes);
          if (kBits < 8) pieces[v] = pieces[v] >> (kBits * i) & 0x0f0f0f0f;
        }
        for (int r = 0; r < R; ++r)
          for (int v = 0; v < kVectors; ++v)
            sums[r][v] = AddBytes(sums[r][v], pieces[v],
                                  words[r * blocks * kWords + w * kPieces + i]);
      }
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = b * kOutputs + v * kLanes;
      const Floats scale = OfFloat16(scales + at);
      for (int r = 0; r < R; ++r)
        totals[r][v] +=
            AsFloats(sums[r][v]) * (scale * x.scales[first + r * blocks]);
      if (!mins) continue;
      const Floats min = OfFloat16(mins + at);
      for (int r = 0; r < R; ++r)
        totals[r][v] += min * x.sums[first + r * blocks];
    }
  }
  for (int r = 0; r < R; ++r)
    std::memcpy(out + r * n_size, totals[r], sizeof(totals[r]));
}

template <int kBits>
ffi::Error Blocks(ffi::ThreadPool pool, int64_t threads,
                  ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::U32> codes,
                  ffi::Buffer<ffi::U16> scales, ffi::Buffer<ffi::U16> mins,
                  ffi::ResultBuffer<ffi::F32> out) {
  const int64_t m_size = x.dimensions()[0], count = codes.dimensions()[0];
  const int64_t blocks = codes.dimensions()[1], n_size = count * kOutputs;
  const uint32_t* code = codes.typed_data();
  const uint16_t* scale = scales.typed_data();
  const uint16_t* min = mins.element_count() ? mins.typed_data() : nullptr;
  const float* given = x.typed_data();
  const Rounded rows(m_size * blocks);
  const Rounded* from = &rows;
  ForEach(pool, threads, m_size, blocks * kBlock / 4, [=](int64_t m) {
    for (int64_t b = m * blocks; b < (m + 1) * blocks; ++b)
      from->Set(b, given + b * kBlock, kBits == 8 ? 128 : 0);
  });
  float* to = out->typed_data();
  ForEach(pool, threads, count, blocks * kBlock / 4, [=](int64_t i) {
    const int64_t at = i * blocks * kOutputs;
    for (int64_t m = 0; m < m_size; m += kBlockRows)
      AsConstant<kBlockRows>(std::min<int64_t>(m_size - m, kBlockRows), [=](auto few) {
        BlockRows<kBits, few>(code + at * kBits, scale + at,
                              min ? min + at : nullptr, *from, m,
                              to + m * n_size + i * kOutputs, blocks, n_size);
      });
  });
  return ffi::Error::Success();
}

auto BlocksBinding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<int64_t>("threads")
      .Arg<ffi::Buffer<ffi::F32>>()
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
