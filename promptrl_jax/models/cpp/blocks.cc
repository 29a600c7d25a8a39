// Products with a packed kernel of 4 or 8 bits, which has a scale and a minimum for
// each output and block of 32 inputs.
//
//   codes  [out / 32, in / 32, bits, 32]  words of 32 bits
//   scales [out / 32, in / 32, 32]        float16, as words of 16 bits
//   mins   [out / 32, in / 32, 32]        likewise, or [0]: all are 0
//   x      [rows, in]                     float32
//   out    [rows, out]                    float32
//
// A weight is scale * code + min, and stored codes of 8 bits are 128 more, so that
// none is negative. Word w of a block has the codes of 32 / bits inputs, from the
// first of these on: byte k has input k, and with 4 bits input k + 4 in its
// upper half. Each 32 numbers of a row are rounded to 8 bits, so that products are
// those of integers, whose sums are exact.

#include <algorithm>
#include <memory>

#include "devices.h"
#include "panels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ffi = xla::ffi;

namespace promptrl::blocks {
namespace {

constexpr int kBlock = 32;  // inputs that share a scale

// The float32 values of float16 numbers. Those below 2^-14 are made by a
// subtraction, because the processor may be set to take small float32 for 0.
inline Floats OfFloat16(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)Load<Halves>(from));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps((__m128i)Load<Halves>(from));
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

// The largest of the lanes, and their sum.
inline int32_t Most(Ints x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32((__m512i)x);
#else
  int32_t most = x[0];
  for (int i = 1; i < kLanes; ++i) most = std::max(most, x[i]);
  return most;
#endif
}

inline int32_t Sum(Ints x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)x);
#else
  int32_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
#endif
}

// How codes are multiplied by the rounded numbers of a row and added up. A word of
// each of several outputs has `kPieces` pieces; each is multiplied by one word of
// the row, which has the numbers in the places of the codes.
template <int kBits>
struct Bytes {
  typedef int32_t Sum;
  typedef Ints Sums;
  static constexpr int kPieces = 8 / kBits;
  // Four codes, a byte each.
  static Words Piece(Words codes, int i) {
    return kBits == 8 ? codes : codes >> (kBits * i) & 0x0f0f0f0f;
  }
  static Floats AsFloats(Sums sum) {
    return __builtin_convertvector(sum, Floats);
  }
  static void Place(const int8_t* numbers, uint32_t* words) {
    std::memcpy(words, numbers, kBlock);
  }
};

#if defined(__AVX512VNNI__)
constexpr int kRows = 6;  // whose sums and totals fit into registers
template <int kBits>
struct Products : Bytes<kBits> {
  typedef Ints Sums;
  static Sums Add(Sums sum, Words piece, uint32_t x) {
    return (Sums)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)piece,
                                     (__m512i)(Words{} + x));
  }
};
#elif defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kRows = 4;
template <int kBits>
struct Products;

// Sums of 16 bits hold those of a block: 32 / 2 products of at most 15 * 127, from
// 0 on, as these codes have no offset.
template <>
struct Products<4> : Bytes<4> {
  static Sums Add(Sums sum, Words piece, uint32_t x) {
    const auto pairs =
        _mm256_maddubs_epi16((__m256i)piece, (__m256i)(Words{} + x));
    return (Sums)_mm256_add_epi16((__m256i)sum, pairs);
  }
  static Floats AsFloats(Sums sum) {
    const auto all = _mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1));
    return __builtin_convertvector((Ints)all, Floats);
  }
};

// Pairs of bytes would overflow: every other byte becomes a number of 16 bits.
template <>
struct Products<8> : Bytes<8> {
  static constexpr int kPieces = 2;
  static Words Piece(Words codes, int i) { return codes >> (8 * i) & 0xff00ff; }
  static Sums Add(Sums sum, Words piece, uint32_t x) {
    const auto pairs =
        _mm256_madd_epi16((__m256i)piece, (__m256i)(Words{} + x));
    return sum + (Sums)pairs;
  }
  static void Place(const int8_t* numbers, uint32_t* words) {
    for (int i = 0; i < kBlock; i += 4, words += kPieces) {
      const int16_t placed[] = {numbers[i], numbers[i + 2], numbers[i + 1],
                                numbers[i + 3]};
      std::memcpy(words, placed, sizeof(placed));
    }
  }
};
#else
constexpr int kRows = kSums / kVectors;
template <int kBits>
struct Products : Bytes<kBits> {
  typedef float Sum;  // of integers below 2^24, so that it is exact
  typedef Floats Sums;
  static Sums Add(Sums sum, Words piece, uint32_t x) {
    for (int i = 0; i < 4; ++i)
      sum += __builtin_convertvector((Ints)(piece >> (8 * i) & 255), Floats) *
             (float)(int8_t)(x >> (8 * i));
    return sum;
  }
  static Floats AsFloats(Sums sum) { return sum; }
};
#endif

// Rows in 8 bits: of each block of 32 numbers, the largest becomes 127.
template <int kBits>
struct Rounded {
  typedef Products<kBits> Type;
  static constexpr int kWords = kBits * Type::kPieces;  // of a block
  // What stored codes of weights are more than the codes themselves.
  static constexpr int kOffset = kBits == 8 ? 128 : 0;

  explicit Rounded(int64_t blocks)
      : words(new uint32_t[blocks * kWords]),
        starts(new typename Type::Sum[blocks]),
        scales(new float[blocks]),
        sums(new float[blocks]) {}

  // Rounds a block.
  void Set(int64_t block, const float* x) const {
    constexpr int V = kBlock / kLanes;
    typedef int8_t Codes __attribute__((vector_size(kLanes)));
    Ints most = {}, sums_of_lanes = {};
    for (int v = 0; v < V; ++v) {
      // Positive numbers are ordered as their bits are.
      const Ints bits = Load<Ints>(x + v * kLanes) & 0x7fffffff;
      most = bits > most ? bits : most;
    }
    const int32_t bits = Most(most);
    float largest;
    std::memcpy(&largest, &bits, sizeof(largest));
    const float factor = largest > 0 ? 127 / largest : 0;
    const float shift = 12582912.0f;  // 1.5 * 2^23: rounds to an integer
    int8_t codes[kBlock];
    for (int v = 0; v < V; ++v) {
      const Floats rounded =
          (Load<Floats>(x + v * kLanes) * factor + shift) - shift;
      const Ints whole = __builtin_convertvector(rounded, Ints);
      sums_of_lanes += whole;
      const Codes some = __builtin_convertvector(whole, Codes);
      std::memcpy(codes + v * kLanes, &some, sizeof(some));
    }
    const int32_t sum = Sum(sums_of_lanes);
    Type::Place(codes, words.get() + block * kWords);
    starts[block] = -kOffset * sum;
    scales[block] = largest / 127;
    sums[block] = scales[block] * sum;
  }

  std::unique_ptr<uint32_t[]> words;                // as `Products` wants them
  std::unique_ptr<typename Type::Sum[]> starts;     // of a block's integer sum
  std::unique_ptr<float[]> scales;                  // of a block
  std::unique_ptr<float[]> sums;                    // of a block, scaled
};

// Multiplies R rows by V vectors of a panel.
template <int kBits, int R, int V>
__attribute__((noinline)) void Pass(
    const uint32_t* codes, const uint16_t* scales, const uint16_t* mins,
    const Rounded<kBits>& x, int64_t row, float* out, int64_t blocks,
    int64_t n_size) {
  typedef Products<kBits> Type;
  constexpr int kWords = Rounded<kBits>::kWords;
  Floats totals[R][V] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = row * blocks + b;
    const uint32_t* words = x.words.get() + first * kWords;
    typename Type::Sums sums[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sums[r][v] = typename Type::Sums{} + x.starts[first + r * blocks];
    for (int w = 0; w < kWords; ++w) {
      Words pieces[V];
      for (int v = 0; v < V; ++v)
        pieces[v] = Type::Piece(Load<Words>(codes + v * kLanes),
                                w % Type::kPieces);
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v)
          sums[r][v] =
              Type::Add(sums[r][v], pieces[v], words[r * blocks * kWords + w]);
      if ((w + 1) % Type::kPieces) continue;
      FetchAhead<V>(codes);
      codes += kOutputs;
    }
    for (int v = 0; v < V; ++v) {
      const int64_t at = b * kOutputs + v * kLanes;
      const Floats scale = OfFloat16(scales + at);
      for (int r = 0; r < R; ++r)
        totals[r][v] = MulAdd(Type::AsFloats(sums[r][v]),
                              scale * x.scales[first + r * blocks],
                              totals[r][v]);
      if (!mins) continue;
      const Floats min = OfFloat16(mins + at);
      for (int r = 0; r < R; ++r)
        totals[r][v] =
            MulAdd(min, All(x.sums[first + r * blocks]), totals[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    std::memcpy(out + r * n_size, totals[r], sizeof(totals[r]));
}

template <int kBits>
ffi::Error Blocks(ffi::ThreadPool pool, int32_t device, int64_t most,
                  ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::U32> codes,
                  ffi::Buffer<ffi::U16> scales, ffi::Buffer<ffi::U16> mins,
                  ffi::ResultBuffer<ffi::F32> out) {
  const int64_t m_size = x.dimensions()[0], count = codes.dimensions()[0];
  const int64_t blocks = codes.dimensions()[1], n_size = count * kOutputs;
  const uint32_t* code = codes.typed_data();
  const uint16_t* scale = scales.typed_data();
  const uint16_t* min = mins.element_count() ? mins.typed_data() : nullptr;
  const float* given = x.typed_data();
  const Rounded<kBits> rows(m_size * blocks);
  const Rounded<kBits>* from = &rows;
  const int64_t threads = ThreadsFor(device, most);
  ForEach(pool, threads, m_size, blocks * kBlock / 4, [=](int64_t m) {
    for (int64_t b = m * blocks; b < (m + 1) * blocks; ++b)
      from->Set(b, given + b * kBlock);
  });
  float* to = out->typed_data();
  ForEach(pool, threads, count, blocks * kBlock / 4, [=](int64_t i) {
    const int64_t at = i * blocks * kOutputs;
    for (int64_t m = 0; m < m_size; m += kRows)
      AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
        constexpr int V = VectorsFor(few);
        for (int v = 0; v < kVectors; v += V) {
          const int64_t first = at + v * kLanes;
          Pass<kBits, few, V>(code + at * kBits + v * kLanes, scale + first,
                              min ? min + first : nullptr, *from, m,
                              to + m * n_size + i * kOutputs + v * kLanes,
                              blocks, n_size);
        }
      });
  });
  return ffi::Error::Success();
}

auto Binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Ctx<ffi::DeviceOrdinal>()
      .Attr<int64_t>("threads")
      .Arg<ffi::Buffer<ffi::F32>>()
      .Arg<ffi::Buffer<ffi::U32>>()
      .Arg<ffi::Buffer<ffi::U16>>()
      .Arg<ffi::Buffer<ffi::U16>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

}  // namespace
}  // namespace promptrl::blocks

XLA_FFI_DEFINE_HANDLER_SYMBOL(few_rows_4_bits, promptrl::blocks::Blocks<4>,
                              promptrl::blocks::Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(few_rows_8_bits, promptrl::blocks::Blocks<8>,
                              promptrl::blocks::Binding());
