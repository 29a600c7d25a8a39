// Products with a packed kernel, which is stored in the order in which it is
// read. A decode step spends most of its time in these products.
//
//   panels [out / 32, in / d, 32, d]  bfloat16 (d = 2) or float32 (d = 1)
//   x      [rows, in]                 float32, rounded to that type
//   out    [rows, out]                float32
//
// A vector holds several outputs, so that no sum runs across its lanes, and the
// order of summation does not depend on the number of rows.

#include <algorithm>
#include <memory>

#include "devices.h"
#include "panels.h"
#include "tiles.h"

namespace ffi = xla::ffi;

namespace promptrl::few_rows {
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
  // Makes numbers of a row into those for so many words.
  static void Set(const float* x, int64_t words, X* to) {
    std::memcpy(to, x, words * sizeof(X));
  }
};

// A word holds two bfloat16 values; each is the upper half of a float32.
struct BFloat16 : Float32 {
  static constexpr int kParts = 2;
  static Floats Part(Words weights, int i) {
    return (Floats)(i == 0 ? weights << 16 : weights & 0xffff0000u);
  }
  static void Set(const float* x, int64_t words, X* to) {
    const int64_t count = words * kParts;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const Words bits = BFloat16Bits<Words>(Load<Floats>(x + i));
      std::memcpy(to + i, &bits, sizeof(bits));
    }
    for (; i < count; ++i) {
      const uint32_t bits = BFloat16Bits<uint32_t>(x[i]);
      std::memcpy(to + i, &bits, sizeof(bits));
    }
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
  static void Set(const float* x, int64_t words, X* to) {
    typedef uint64_t Doubles __attribute__((vector_size(kVector)));
    constexpr int kPairs = kLanes / 2;
    typedef uint32_t Pairs __attribute__((vector_size(4 * kPairs)));
    int64_t i = 0;
    for (; i + kPairs <= words; i += kPairs) {
      const Doubles both = (Doubles)BFloat16Bits<Words>(Load<Floats>(x + 2 * i));
      const Pairs pairs = __builtin_convertvector(
          (both >> 16 & 0xffff) | both >> 32, Pairs);
      std::memcpy(to + i, &pairs, sizeof(pairs));
    }
    for (; i < words; ++i)
      to[i] = BFloat16Bits<uint32_t>(x[2 * i]) >> 16 |
              BFloat16Bits<uint32_t>(x[2 * i + 1]);
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

// Multiplies all rows by the panels from `begin` to `end`.
template <typename Type>
void Multiply(const uint32_t* panels, const typename Type::X* rows,
              int64_t m_size, int64_t words, float* out, int64_t n_size,
              int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t m = 0; m < m_size; m += kRows)
      AsConstant<kRows>(std::min<int64_t>(m_size - m, kRows), [=](auto few) {
        constexpr int V = VectorsFor(few);
        for (int v = 0; v < kVectors; v += V)
          Pass<Type, few, V>(panels + i * kOutputs * words + v * kLanes,
                             rows + m * words * Type::kParts,
                             out + m * n_size + i * kOutputs + v * kLanes,
                             words, n_size);
      });
}

#if defined(PROMPTRL_TILES)
struct BFloat16Tiles : BFloat16Pairs {};

// Multiplies two tiles of rows by a panel.
void TilePass(const uint32_t* panel, const uint32_t* first,
              const uint32_t* second, float* first_out, float* second_out,
              int64_t words, int64_t n_size) {
  constexpr int64_t kAheadOfTiles = 4 * kAhead;
  const int64_t x_bytes = 4 * words, out_bytes = 4 * n_size;
  constexpr int64_t kPanelBytes = 4 * kOutputs;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < words; k += tiles::kWords) {
    for (int i = 0; i < tiles::kWords * kOutputs; i += kLine)
      __builtin_prefetch(panel + kAheadOfTiles + i);
    _tile_loadd(4, first + k, x_bytes);
    _tile_loadd(6, panel, kPanelBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + tiles::kWords, kPanelBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, second + k, x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    panel += tiles::kWords * kOutputs;
  }
  _tile_stored(0, first_out, out_bytes);
  _tile_stored(1, first_out + tiles::kWords, out_bytes);
  _tile_stored(2, second_out, out_bytes);
  _tile_stored(3, second_out + tiles::kWords, out_bytes);
}

// The last tile of rows that do not fill it begins earlier, and that after it is the
// same one: what is computed twice are the same bits.
template <>
void Multiply<BFloat16Tiles>(const uint32_t* panels, const uint32_t* rows,
                             int64_t m_size, int64_t words, float* out,
                             int64_t n_size, int64_t begin, int64_t end) {
  if (!m_size) return;
  constexpr int64_t kBoth = 2 * tiles::kRows;
  const int64_t at_once =
      std::max(kBoth, tiles::kBytesAtOnce / (4 * words) / kBoth * kBoth);
  const int64_t tile = std::min<int64_t>(m_size, tiles::kRows);
  const tiles::Shapes shapes(tile);
  tiles::MakeWritten();
  for (int64_t start = 0; start < m_size; start += at_once) {
    const int64_t stop = std::min(m_size, start + at_once);
    for (int64_t i = begin; i < end; ++i)
      for (int64_t m = start; m < stop; m += 2 * tile) {
        const int64_t first = std::min(m, m_size - tile);
        const int64_t second = std::min(m + tile, m_size - tile);
        float* to = out + i * kOutputs;
        TilePass(panels + i * kOutputs * words, rows + first * words,
                 rows + second * words, to + first * n_size,
                 to + second * n_size, words, n_size);
      }
  }
}
#endif

template <typename Type, ffi::DataType kType>
ffi::Error FewRows(ffi::ThreadPool pool, int32_t device, int64_t most,
                   ffi::Buffer<ffi::F32> x, ffi::Buffer<kType> panels,
                   ffi::ResultBuffer<ffi::F32> out) {
  typedef typename Type::X X;
  const int64_t m_size = x.dimensions()[0], count = panels.dimensions()[0];
  const int64_t in_size = x.dimensions()[1], n_size = count * kOutputs;
  const int64_t words = panels.dimensions()[1], size = words * Type::kParts;
  const uint32_t* panel = static_cast<const uint32_t*>(panels.untyped_data());
  const float* given = x.typed_data();
  const std::unique_ptr<X[]> all(new X[m_size * size]);
  X* rows = all.get();
  const int64_t threads = ThreadsFor(device, most);
  ForEach(pool, threads, m_size, words, [=](int64_t m) {
    Type::Set(given + m * in_size, words, rows + m * size);
  });
  float* sums = out->typed_data();
  ForParts(pool, threads, count, words, [=](int64_t begin, int64_t end) {
    Multiply<Type>(panel, rows, m_size, words, sums, n_size, begin, end);
  });
  return ffi::Error::Success();
}

ffi::Error FewRowsBFloat16(ffi::ThreadPool pool, int32_t device, int64_t most,
                           ffi::Buffer<ffi::F32> x,
                           ffi::Buffer<ffi::BF16> panels,
                           ffi::ResultBuffer<ffi::F32> out) {
#if defined(PROMPTRL_TILES)
  if (panels.dimensions()[1] % tiles::kWords == 0 && tiles::AreAllowed())
    return FewRows<BFloat16Tiles, ffi::BF16>(pool, device, most, x, panels, out);
#endif
#if defined(__AVX512BF16__)
  // Intel's processors start one every other cycle, a quarter of the rate of fused
  // multiply-adds, whose factors cost little to widen: 75 against 46 x 10^9
  // multiplications a second on a core of Emerald Rapids.
  if (!__builtin_cpu_is("intel"))
    return FewRows<BFloat16Pairs, ffi::BF16>(pool, device, most, x, panels, out);
#endif
  return FewRows<BFloat16, ffi::BF16>(pool, device, most, x, panels, out);
}

template <ffi::DataType kType>
auto Binding() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Ctx<ffi::DeviceOrdinal>()
      .template Attr<int64_t>("threads")
      .template Arg<ffi::Buffer<ffi::F32>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<ffi::F32>>();
}

}  // namespace
}  // namespace promptrl::few_rows

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    few_rows_bfloat16, promptrl::few_rows::FewRowsBFloat16,
    promptrl::few_rows::Binding<ffi::BF16>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    few_rows_float32,
    (promptrl::few_rows::FewRows<promptrl::few_rows::Float32, ffi::F32>),
    promptrl::few_rows::Binding<ffi::F32>());
