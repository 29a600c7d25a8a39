// Products with a packed kernel, which is stored in the order in which it is
// read. A decode step spends most of its time in these products.
//
//   panels [out / 32, in / d, 32, d]  bfloat16 (d = 2) or float32 (d = 1)
//   x      [rows, in]                 of the same type
//   out    [rows, out]                float32
//
// A kernel of 4 or 8 bits is unpacked to panels of bfloat16, one at a time:
//
//   codes  [out / 32, in / 32, bits / 2, 64]  words of 32 bits
//   scales [out / 32, in / 32, 32]            float16, as words of 16 bits
//   mins   [out / 32, in / 32, 32]            likewise, or [0]: all are 0
//
// A weight is scale * code + min of its output and its block of 32 inputs; codes
// of 4 bits are unsigned. Number 2 * o + e of the 64 words of a block is of
// output o and holds, in pieces of `bits`, the inputs 2 * p + e in the order of
// p.
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

// Multiplies `m_size` rows by `count` panels; `panel(i)` returns a pointer to
// panel i, which is valid until the next call on the same thread.
template <typename Type, typename PanelFn>
void Multiply(ffi::ThreadPool pool, int64_t threads, const void* x,
              int64_t m_size, int64_t count, int64_t words, float* out,
              PanelFn panel) {
  const uint32_t* rows = static_cast<const uint32_t*>(x);
  const int64_t n_size = count * kOutputs;
  // Each thread gets several parts, so that no thread waits long for the last.
  const int64_t size = (count + 4 * threads - 1) / (4 * threads);
  const auto some = [=](int64_t part) {
    const int64_t end = std::min(count, (part + 1) * size);
    for (int64_t i = part * size; i < end; ++i) {
      const uint32_t* weights = panel(i);
      for (int64_t m = 0; m < m_size; m += kRows)
        AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
          Rows<Type, few>(weights, rows + m * words,
                          out + m * n_size + i * kOutputs, words, n_size);
        });
    }
  };
  const bool is_large = count * words >= kWorthSharing;
  Share(pool, is_large ? threads : 1, (count + size - 1) / size, some);
}

template <typename Type, ffi::DataType kType>
ffi::Error FewRows(ffi::ThreadPool pool, int64_t threads,
                   ffi::Buffer<kType> x, ffi::Buffer<kType> panels,
                   ffi::ResultBuffer<ffi::F32> out) {
  const int64_t words = panels.dimensions()[1];
  const uint32_t* first = static_cast<const uint32_t*>(panels.untyped_data());
  Multiply<Type>(pool, threads, x.untyped_data(), x.dimensions()[0],
                 panels.dimensions()[0], words, out->typed_data(),
                 [=](int64_t i) { return first + i * kOutputs * words; });
  return ffi::Error::Success();
}

constexpr int kBlock = 32;             // inputs that share a scale
constexpr int kFlat = 2 * kOutputs;    // numbers of a panel for two inputs

typedef uint16_t Halves __attribute__((vector_size(kVector / 2)));

// The float32 values of float16 numbers. Those below 2^-14 are made by a
// subtraction, because the processor may be set to take small float32 for 0.
inline Floats OfFloat16(Words x) {
  const Words bits = (x & 0x7fff) << 13, sign = (x & 0x8000) << 16;
  const Words normal = bits + (112u << 23);
  const Words above = bits + (113u << 23);
  const Words small =
      (Words)((Floats)above - (Floats)(Words{} + (113u << 23)));
  const Words is_small = (Words)(bits < (1u << 23));
  return (Floats)((small & is_small) | (normal & ~is_small) | sign);
}

// Rounds to the nearest bfloat16, a tie to the even one.
inline Halves ToBFloat16(Floats x) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh((__m512)x);
#else
  Words bits = (Words)x;
  bits += 0x7fff + ((bits >> 16) & 1);
  return __builtin_convertvector(bits >> 16, Halves);
#endif
}

// Writes the float32 value of each of `kOutputs` numbers twice.
inline void Twice(const uint16_t* from, float* to) {
  float once[kOutputs];
  for (int o = 0; o < kOutputs; o += kLanes) {
    const Floats some =
        OfFloat16(__builtin_convertvector(Load<Halves>(from + o), Words));
    std::memcpy(once + o, &some, sizeof(some));
  }
  for (int o = 0; o < kOutputs; ++o) to[2 * o] = to[2 * o + 1] = once[o];
}

template <int kBits>
__attribute__((noinline)) void Unpack(const uint32_t* codes,
                                      const uint16_t* scales,
                                      const uint16_t* mins, int64_t blocks,
                                      uint16_t* to) {
  constexpr int kPieces = 32 / kBits, kWords = kBlock / 2 / kPieces;
  float scale[kFlat], min[kFlat] = {};
  for (int64_t b = 0; b < blocks; ++b, codes += kWords * kFlat) {
    Twice(scales + b * kOutputs, scale);
    if (mins) Twice(mins + b * kOutputs, min);
    for (int c = 0; c < kFlat; c += kLanes) {
      const Floats times = Load<Floats>(scale + c), plus = Load<Floats>(min + c);
      for (int w = 0; w < kWords; ++w) {
        const Words word = Load<Words>(codes + w * kFlat + c);
        for (int i = 0; i < kPieces; ++i) {
          const Ints code = kBits == 4
                                ? (Ints)((word >> (i * kBits)) & 15)
                                : (Ints)(word << (24 - i * kBits)) >> 24;
          const Halves weights =
              ToBFloat16(__builtin_convertvector(code, Floats) * times + plus);
          std::memcpy(to + ((b * kWords + w) * kPieces + i) * kFlat + c,
                      &weights, sizeof(weights));
        }
      }
    }
  }
}

template <int kBits>
ffi::Error Blocks(ffi::ThreadPool pool, int64_t threads,
                  ffi::Buffer<ffi::BF16> x, ffi::Buffer<ffi::U32> codes,
                  ffi::Buffer<ffi::U16> scales, ffi::Buffer<ffi::U16> mins,
                  ffi::ResultBuffer<ffi::F32> out) {
  const int64_t blocks = codes.dimensions()[1];
  const uint32_t* code = codes.typed_data();
  const uint16_t* scale = scales.typed_data();
  const uint16_t* min = mins.element_count() ? mins.typed_data() : nullptr;
  const auto panel = [=](int64_t i) {
    thread_local std::vector<uint32_t> weights;
    weights.resize(blocks * kBlock / 2 * kOutputs);
    const int64_t at = i * blocks * kOutputs;
    Unpack<kBits>(code + at * kBits, scale + at, min ? min + at : nullptr,
                  blocks, reinterpret_cast<uint16_t*>(weights.data()));
    return weights.data();
  };
  Multiply<BFloat16>(pool, threads, x.untyped_data(), x.dimensions()[0],
                     codes.dimensions()[0], blocks * kBlock / 2,
                     out->typed_data(), panel);
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
