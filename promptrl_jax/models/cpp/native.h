// Vectors and threads, shared by the functions of this folder.

#ifndef PROMPTRL_NATIVE_H_
#define PROMPTRL_NATIVE_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "xla/ffi/api/ffi.h"

namespace promptrl {

// Bytes of a vector, and the number of vector sums that fit into registers.
#if defined(__AVX512F__)
constexpr int kVector = 64, kSums = 16;
#elif defined(__aarch64__)
constexpr int kVector = 16, kSums = 16;
#else
constexpr int kVector = 32, kSums = 8;
#endif
constexpr int kLanes = kVector / 4;

typedef float Floats __attribute__((vector_size(kVector)));
typedef int32_t Ints __attribute__((vector_size(kVector)));
typedef uint32_t Words __attribute__((vector_size(kVector)));

template <typename Vector>
inline Vector Load(const void* from) {
  Vector found;
  std::memcpy(&found, from, sizeof(found));
  return found;
}

// Calls `what` with `n`, from 1 to Most, as a compile-time constant.
template <int Most, typename What>
void AsConstant(int64_t n, What what) {
  if constexpr (Most > 0) {
    if (n == Most) return what(std::integral_constant<int, Most>());
    AsConstant<Most - 1>(n, what);
  }
}

// Calls `part(i)` for i < parts, on this thread and on up to `threads` - 1
// threads of the pool. A thread that starts late may find no part left.
template <typename Part>
void Share(xla::ffi::ThreadPool pool, int64_t threads, int64_t parts,
           Part part) {
  if (threads == 1) {
    for (int64_t i = 0; i < parts; ++i) part(i);
    return;
  }
  struct Counts {
    std::atomic<int64_t> begun{0}, done{0};
  };
  auto counts = std::make_shared<Counts>();
  auto work = [counts, parts, part] {
    for (int64_t i; (i = counts->begun.fetch_add(1)) < parts;) {
      part(i);
      counts->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 1; i < threads; ++i) pool.Schedule(decltype(work)(work));
  work();
  while (counts->done.load(std::memory_order_acquire) < parts) {
  }
}

}  // namespace promptrl

#endif  // PROMPTRL_NATIVE_H_
