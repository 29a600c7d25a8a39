// Kernels in panels of 32 outputs, shared by the products with them.

#ifndef PROMPTRL_PANELS_H_
#define PROMPTRL_PANELS_H_

#include <algorithm>

#include "native.h"

namespace promptrl {

constexpr int kOutputs = 32;  // outputs per panel
constexpr int kVectors = kOutputs / kLanes;
// A second thread pays off if all panels, each of 32 outputs, hold at least 32 times
// this many words.
constexpr int64_t kWorthSharing = 1 << 12;

// Vectors of a panel per pass over it: all for as few rows as their sums fit into
// registers with, otherwise two, so that more rows share what is read.
constexpr int VectorsFor(int rows) {
  return rows * kVectors <= kSums ? kVectors : 2;
}

// How far ahead of what is multiplied its panel is fetched, in words: 1 KiB.
// Processors look ahead by themselves, but too late for a single row, and not
// beyond a page of 4 KiB.
constexpr int64_t kAhead = 8 * kOutputs;
constexpr int kLine = 16;  // words that are fetched together

template <int V>
inline void FetchAhead(const uint32_t* panel) {
  for (int i = 0; i < V * kLanes; i += kLine)
    __builtin_prefetch(panel + kAhead + i);
}

// Calls `some(begin, end)` for parts of `count` panels of `words` words per output,
// or of rows of so many words.
template <typename Some>
void ForParts(xla::ffi::ThreadPool pool, int64_t threads, int64_t count,
              int64_t words, Some some) {
  // Each thread gets several parts, so that no thread waits long for the last.
  const int64_t size = (count + 4 * threads - 1) / (4 * threads);
  const bool is_large = count * words >= kWorthSharing;
  Share(pool, is_large ? threads : 1, (count + size - 1) / size,
        [=](int64_t part) {
          some(part * size, std::min(count, (part + 1) * size));
        });
}

// Calls `one(i)` for each of them.
template <typename One>
void ForEach(xla::ffi::ThreadPool pool, int64_t threads, int64_t count,
             int64_t words, One one) {
  ForParts(pool, threads, count, words, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(i);
  });
}

}  // namespace promptrl

#endif  // PROMPTRL_PANELS_H_
