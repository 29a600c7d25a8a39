// Vectors and threads, shared by the functions of this folder.

#ifndef PROMPTRL_NATIVE_H_
#define PROMPTRL_NATIVE_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "xla/ffi/api/ffi.h"
#if defined(__FMA__)
#include <immintrin.h>
#endif

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
typedef uint16_t Halves __attribute__((vector_size(kVector / 2)));

template <typename Vector>
inline Vector Load(const void* from) {
  Vector found;
  std::memcpy(&found, from, sizeof(found));
  return found;
}

inline Floats Choose(Ints which, Floats yes, Floats no) {
  return (Floats)(((Ints)yes & which) | ((Ints)no & ~which));
}

// The bits of the nearest bfloat16 values as float32 ones; of two, the even one.
// `Bits` is `uint32_t` for a number, `Words` for a vector of them.
template <typename Bits, typename Number>
inline Bits BFloat16Bits(Number x) {
  Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  return x == x ? rounded : Bits{} + 0x7fc00000u;
}

// A vector of one number. To subtract 0 changes none, unlike to add it to -0.
inline Floats All(float x) { return x - Floats{}; }

// Computes sum + x * y, rounded once. Written as such, some compilers round twice
// in a loop with few sums, so that a row would depend on those beside it.
inline Floats MulAdd(Floats x, Floats y, Floats sum) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
  return sum + x * y;
#endif
}

// Computes exp(x) of x <= 0 as 2^n e^r with |r| <= ln 2 / 2. The series up to
// r^6 has a relative error of 2e-7. Below -87 the result is 0, where exp(x) is
// close to the smallest float32.
inline Floats Exp(Floats x) {
  const Floats zero = {};
  const Ints is_small = x < zero - 87.0f;
  x = (Floats)((Ints)x & ~is_small);
  const Floats shift = zero + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const Floats n = (x * 1.44269504f + shift) - shift;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Floats sum = zero + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  return (Floats)((Ints)(sum * (Floats)power) & ~is_small);
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
