// Attention of one token per row to a key-value cache, and of all tokens of
// prompts to each other. Neither reads keys before the first and after the last
// unmasked one of a block.
//
//   qkv     [B, K, U + 2, H]  U queries, a key and a value of the token
//   cos, sin [B, H / 2]       by which queries and key are rotated; queries are
//                             then multiplied by `scale`
//   slot    [B]               int32, where key and value are written first
//   keys    [B, K, X, H, W]   X blocks of W cache slots, float32, or bits of bfloat16
//   values  [B, K, X, W, H]   of the same type
//   mask    [B, X * W]        bool; at least one value of each row is true
//   out     [B, K, U, H]
//
// Keys and values are also results, in the same memory. What is not said to be of
// another type is float32; H and W are multiples of 16. The queries of a key-value
// head share each key and value that is loaded.
//
// The last S tokens of left-padded prompts in P places, float32:
//
//   queries [B, S, K, U, H]   already rotated and scaled
//   keys, values [B, P, K, H]
//   mask    [B, S, P]         bool, whether query i sees key j
//   first   [B]               int32, the place of the first token
//   out     [B, S, K, U, H]
//
// A thread lays out the keys and values of a head as in a cache, from the first
// token on: a result depends neither on the padding nor on S. Queries of
// following tokens share what is loaded. The result for a query that sees nothing
// is finite, and has no meaning.

#include <algorithm>
#include <vector>

#include "devices.h"
#include "native.h"

namespace ffi = xla::ffi;

namespace promptrl::attend {
namespace {

constexpr float kNever = -1e30f;
// A second thread pays off if the keys hold at least this many numbers.
constexpr int64_t kWorthSharing = 1 << 19;
// Queries that share a pass over keys and values: of a token, and of a prompt.
constexpr int kTogether = 4, kTokens = kSums / 2;
constexpr int kPromptWidth = 4 * kLanes;

typedef uint8_t Bytes __attribute__((vector_size(kVector / 4)));

// All bits of a lane are set where `seen` is true.
inline Ints Seen(const bool* seen) {
  return __builtin_convertvector(Load<Bytes>(seen), Ints) != 0;
}

inline Floats Wide(const float* from) { return Load<Floats>(from); }

// A bfloat16 value is the upper half of a float32.
inline Floats Wide(const uint16_t* from) {
  return (Floats)(__builtin_convertvector(Load<Halves>(from), Words) << 16);
}

// Rotates pairs of numbers, the first of which lie in the first half of a row.
inline void Rotate(const float* x, const float* cos, const float* sin,
                   int64_t half, float scale, float* to) {
  for (int64_t h = 0; h < half; ++h) {
    const float first = x[h], second = x[h + half];
    to[h] = (first * cos[h] - second * sin[h]) * scale;
    to[h + half] = (second * cos[h] + first * sin[h]) * scale;
  }
}

inline void Narrow(float x, float* to) { *to = x; }
inline void Narrow(float x, uint16_t* to) {
  *to = BFloat16Bits<uint32_t>(x) >> 16;
}

// Adds for G vectors of factors, `by` numbers apart, in the first V vectors of
// columns: see `AddRows`.
template <typename Type, int G, int V>
__attribute__((noinline)) void AddColumns(const float* factors, int64_t by,
                                          const Type* rows, int64_t count,
                                          int64_t stride, float* to,
                                          int64_t to_by) {
  Floats sums[G][V];
  for (int g = 0; g < G; ++g) std::memcpy(sums[g], to + g * to_by, sizeof(sums[g]));
  for (int64_t i = 0; i < count; ++i)
    for (int v = 0; v < V; ++v) {
      const Floats row = Wide(rows + i * stride + v * kLanes);
      for (int g = 0; g < G; ++g)
        sums[g][v] = MulAdd(All(factors[g * by + i]), row, sums[g][v]);
    }
  for (int g = 0; g < G; ++g) std::memcpy(to + g * to_by, sums[g], sizeof(sums[g]));
}

// Adds the sum over i < count of factors[g * by + i] * rows[i * stride + j] to
// to[g * to_by + j], for g < G and the columns j in [from, end), in whole
// vectors. It processes as many vectors at once as registers hold, because long
// contiguous reads are fastest.
template <int G, typename Type>
void AddRows(const float* factors, int64_t by, const Type* rows, int64_t count,
             int64_t stride, int64_t from, int64_t end, float* to,
             int64_t to_by) {
  constexpr int kMost = kSums / G;
  const int64_t vectors = (end - from) / kLanes;
  const int64_t passes = (vectors + kMost - 1) / kMost;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t first = i * vectors / passes;
    const int64_t j = from + first * kLanes;
    AsConstant<kMost>((i + 1) * vectors / passes - first, [=](auto some) {
      AddColumns<Type, G, some>(factors, by, rows + j, count, stride, to + j,
                                to_by);
    });
  }
}

// The cache slots of a block that are read: from the first to the last unmasked
// slot, rounded to whole vectors.
struct Range {
  int64_t from, to;
};

Range Visible(const bool* mask, int64_t width) {
  const void* first = std::memchr(mask, true, width);
  if (first == nullptr) return {0, 0};
  const int64_t from = static_cast<const bool*>(first) - mask;
  int64_t to = width;
  while (!mask[to - 1]) --to;
  return {from / kLanes * kLanes, (to + kLanes - 1) / kLanes * kLanes};
}

// Queries that lie `by` numbers apart, as their results do, and the masks of them
// `seen_by` numbers apart.
struct Queries {
  const float* at;
  float* out;
  int64_t by;
  const bool* seen;
  int64_t seen_by;
};

// The cache slots of either range.
Range Both(Range one, Range other) {
  if (one.from == one.to) return other;
  if (other.from == other.to) return one;
  return {std::min(one.from, other.from), std::max(one.to, other.to)};
}

// One key-value head of one row, for G of its queries.
template <int G, typename Type>
void AttendHead(const Queries& queries, const Type* keys, const Type* values,
                const std::vector<Range>& ranges, int64_t h_size, int64_t width,
                float* scores) {
  const int64_t blocks = ranges.size(), slots = blocks * width;
  Floats most[G];
  for (int g = 0; g < G; ++g) most[g] = Floats{} + kNever;
  for (int64_t c = 0; c < blocks; ++c) {
    const auto [begin, end] = ranges[c];
    float* of_block = scores + c * width;
    for (int g = 0; g < G; ++g)
      std::fill(of_block + g * slots + begin, of_block + g * slots + end, 0.0f);
    AddRows<G>(queries.at, queries.by, keys + c * h_size * width, h_size, width,
               begin, end, of_block, slots);
    for (int64_t w = begin; w < end; w += kLanes) {
      for (int g = 0; g < G; ++g) {
        const Ints is_seen =
            Seen(queries.seen + g * queries.seen_by + c * width + w);
        float* at = of_block + g * slots + w;
        const Floats score = Choose(is_seen, Load<Floats>(at), Floats{} + kNever);
        std::memcpy(at, &score, sizeof(score));
        most[g] = Choose(score > most[g], score, most[g]);
      }
    }
  }
  float largest[G];
  for (int g = 0; g < G; ++g) {
    largest[g] = kNever;
    for (int lane = 0; lane < kLanes; ++lane)
      largest[g] = std::max(largest[g], most[g][lane]);
  }
  for (int g = 0; g < G; ++g)
    std::fill_n(queries.out + g * queries.by, h_size, 0.0f);
  Floats total[G] = {};
  for (int64_t c = 0; c < blocks; ++c) {
    const auto [begin, end] = ranges[c];
    float* of_block = scores + c * width;
    for (int g = 0; g < G; ++g)
      for (int64_t w = begin; w < end; w += kLanes) {
        float* at = of_block + g * slots + w;
        const Floats weights = Exp(Load<Floats>(at) - largest[g]);
        std::memcpy(at, &weights, sizeof(weights));
        total[g] += weights;
      }
    AddRows<G>(of_block + begin, slots, values + (c * width + begin) * h_size,
               end - begin, h_size, 0, h_size, queries.out, queries.by);
  }
  for (int g = 0; g < G; ++g) {
    float sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += total[g][lane];
    // The result of a row without unmasked slots stays 0.
    if (sum != 0)
      for (int64_t h = 0; h < h_size; ++h) queries.out[g * queries.by + h] /= sum;
  }
}

template <typename Type, ffi::DataType kType>
ffi::Error Attend(ffi::ThreadPool pool, int32_t device, int64_t most,
                  float scale, ffi::Buffer<ffi::F32> qkv, ffi::Buffer<ffi::F32> cos,
                  ffi::Buffer<ffi::F32> sin, ffi::Buffer<ffi::S32> slot,
                  ffi::Buffer<kType> keys, ffi::Buffer<kType> values,
                  ffi::Buffer<ffi::PRED> mask, ffi::ResultBuffer<ffi::F32> out,
                  ffi::ResultBuffer<kType> new_keys,
                  ffi::ResultBuffer<kType> new_values) {
  const auto shape = keys.dimensions();
  const int64_t rows = shape[0], heads = shape[1], blocks = shape[2];
  const int64_t h_size = shape[3], width = shape[4];
  const int64_t group = qkv.dimensions()[2] - 2, slots = blocks * width;
  const int64_t half = h_size / 2;
  const float* given = qkv.typed_data();
  const float *cosines = cos.typed_data(), *sines = sin.typed_data();
  const int32_t* places = slot.typed_data();
  Type* k = static_cast<Type*>(new_keys->untyped_data());
  Type* v = static_cast<Type*>(new_values->untyped_data());
  if (k != keys.untyped_data() || v != values.untyped_data())
    return ffi::Error::Internal("the cache is not updated in place");
  for (int64_t row = 0; row < rows; ++row)
    if (places[row] < 0 || places[row] >= slots)
      return ffi::Error::InvalidArgument("a cache slot outside of the cache");
  const bool* visible = mask.typed_data();
  float* to = out->typed_data();
  const auto one = [=](int64_t i) {
    const int64_t row = i / heads, start = i * slots * h_size;
    const bool* seen = visible + row * slots;
    thread_local std::vector<float> rotated, scores;
    thread_local std::vector<Range> ranges;
    rotated.resize((group + 1) * h_size);
    scores.resize(kTogether * slots);
    ranges.resize(blocks);
    for (int64_t c = 0; c < blocks; ++c)
      ranges[c] = Visible(seen + c * width, width);
    const float* from = given + i * (group + 2) * h_size;
    for (int64_t g = 0; g <= group; ++g)
      Rotate(from + g * h_size, cosines + row * half, sines + row * half, half,
             g < group ? scale : 1.0f, rotated.data() + g * h_size);
    const float* key = rotated.data() + group * h_size;
    const float* value = from + (group + 1) * h_size;
    const int64_t block = places[row] / width, offset = places[row] % width;
    Type* key_to = k + start + block * h_size * width + offset;
    Type* value_to = v + start + places[row] * h_size;
    for (int64_t h = 0; h < h_size; ++h) {
      Narrow(key[h], key_to + h * width);
      Narrow(value[h], value_to + h);
    }
    for (int64_t g = 0; g < group; g += kTogether) {
      const Queries queries = {rotated.data() + g * h_size,
                               to + (i * group + g) * h_size, h_size, seen, 0};
      AsConstant<kTogether>(std::min<int64_t>(group - g, kTogether), [=](auto n) {
        AttendHead<n>(queries, k + start, v + start, ranges, h_size, width,
                      scores.data());
      });
    }
  };
  const bool is_large = rows * heads * slots * h_size >= kWorthSharing;
  const int64_t threads = ThreadsFor(device, most);
  Share(pool, is_large ? threads : 1, rows * heads, one);
  return ffi::Error::Success();
}

// Keys and values of one head as those of a cache, whose slots behind the last
// token are 0 and masked.
struct PromptHead {
  std::vector<float> keys, values;

  void LayOut(const float* from_keys, const float* from_values, int64_t tokens,
              int64_t blocks, int64_t by, int64_t h_size) {
    keys.assign(blocks * kPromptWidth * h_size, 0.0f);
    values.assign(keys.size(), 0.0f);
    for (int64_t t = 0; t < tokens; ++t) {
      float* column = keys.data() + t / kPromptWidth * kPromptWidth * h_size +
                      t % kPromptWidth;
      for (int64_t h = 0; h < h_size; ++h)
        column[h * kPromptWidth] = from_keys[t * by + h];
      std::memcpy(values.data() + t * h_size, from_values + t * by,
                  h_size * sizeof(float));
    }
  }
};

ffi::Error AttendPrompts(ffi::ThreadPool pool, int32_t device, int64_t most,
                         ffi::Buffer<ffi::F32> queries,
                         ffi::Buffer<ffi::F32> keys,
                         ffi::Buffer<ffi::F32> values,
                         ffi::Buffer<ffi::PRED> mask,
                         ffi::Buffer<ffi::S32> first,
                         ffi::ResultBuffer<ffi::F32> out) {
  const auto shape = queries.dimensions();
  const int64_t rows = shape[0], tokens = shape[1], heads = shape[2];
  const int64_t group = shape[3], h_size = shape[4];
  const int64_t places = keys.dimensions()[1], by = heads * group * h_size;
  const float* q = queries.typed_data();
  const float* k = keys.typed_data();
  const float* v = values.typed_data();
  const bool* visible = mask.typed_data();
  const int32_t* starts = first.typed_data();
  float* to = out->typed_data();
  const auto one = [=](int64_t i) {
    const int64_t row = i / heads, head = i % heads;
    const int64_t padding = starts[row], length = places - padding;
    const int64_t blocks = (length + kPromptWidth - 1) / kPromptWidth;
    const int64_t slots = blocks * kPromptWidth;
    thread_local PromptHead cache;
    thread_local std::vector<float> scores;
    thread_local std::vector<Range> ranges;
    thread_local std::vector<uint8_t> masks;
    const int64_t start = ((row * places + padding) * heads + head) * h_size;
    cache.LayOut(k + start, v + start, length, blocks, heads * h_size, h_size);
    scores.resize(kTokens * slots);
    ranges.resize(blocks);
    masks.assign(kTokens * slots, false);
    const bool* seen = reinterpret_cast<const bool*>(masks.data());
    for (int64_t t = 0; t < tokens; t += kTokens) {
      const int64_t count = std::min<int64_t>(tokens - t, kTokens);
      for (int64_t g = 0; g < count; ++g)
        std::memcpy(masks.data() + g * slots,
                    visible + (row * tokens + t + g) * places + padding, length);
      for (int64_t c = 0; c < blocks; ++c) {
        Range all = {0, 0};
        for (int64_t g = 0; g < count; ++g)
          all = Both(all, Visible(seen + g * slots + c * kPromptWidth,
                                  kPromptWidth));
        ranges[c] = all;
      }
      for (int64_t u = 0; u < group; ++u) {
        const int64_t at =
            (row * tokens + t) * by + (head * group + u) * h_size;
        const Queries some = {q + at, to + at, by, seen, slots};
        AsConstant<kTokens>(count, [=](auto n) {
          AttendHead<n>(some, cache.keys.data(), cache.values.data(), ranges,
                        h_size, kPromptWidth, scores.data());
        });
      }
    }
  };
  Share(pool, ThreadsFor(device, most), rows * heads, one);
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto Binding() {
  return ffi::Ffi::Bind()
      .template Ctx<ffi::ThreadPool>()
      .template Ctx<ffi::DeviceOrdinal>()
      .template Attr<int64_t>("threads")
      .template Attr<float>("scale")
      .template Arg<ffi::Buffer<ffi::F32>>()
      .template Arg<ffi::Buffer<ffi::F32>>()
      .template Arg<ffi::Buffer<ffi::F32>>()
      .template Arg<ffi::Buffer<ffi::S32>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<ffi::PRED>>()
      .template Ret<ffi::Buffer<ffi::F32>>()
      .template Ret<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<kType>>();
}

}  // namespace
}  // namespace promptrl::attend

XLA_FFI_DEFINE_HANDLER_SYMBOL(attend_float32,
                              (promptrl::attend::Attend<float, ffi::F32>),
                              promptrl::attend::Binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attend_bfloat16,
                              (promptrl::attend::Attend<uint16_t, ffi::U16>),
                              promptrl::attend::Binding<ffi::U16>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attend_prompts, promptrl::attend::AttendPrompts,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Attr<int64_t>("threads")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
