// How threads are divided among the devices of a process that are at work.

#ifndef PROMPTRL_DEVICES_H_
#define PROMPTRL_DEVICES_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace promptrl {

constexpr int32_t kMostDevices = 256;
// Nanoseconds. A device at work calls a function of this folder more often, also
// where it draws from a large vocabulary or waits for its turn on a busy machine.
constexpr int64_t kLately = 100'000'000;

// Each has a cache line of its own, so that no device waits for another's.
struct alignas(64) LastCall {
  std::atomic<int64_t> at{std::numeric_limits<int64_t>::min() / 2};
};
inline LastCall last_calls[kMostDevices];
inline std::atomic<int32_t> num_devices{0};

// Notes that a device calls at a time, and returns how many threads it may use: at
// most `most`, divided by the number of devices that have called lately. So the
// only request, or the last one of a run, has all of them. Results do not depend
// on it.
inline int64_t ThreadsAt(int64_t now, int32_t device, int64_t most) {
  if (device < 0 || device >= kMostDevices) return 1;
  last_calls[device].at.store(now, std::memory_order_relaxed);
  int32_t known = num_devices.load(std::memory_order_relaxed);
  while (known <= device &&
         !num_devices.compare_exchange_weak(known, device + 1)) {
  }
  int64_t at_work = 0;
  for (int32_t i = 0; i < std::max(known, device + 1); ++i)
    at_work += now - last_calls[i].at.load(std::memory_order_relaxed) < kLately;
  return std::max<int64_t>(1, most / at_work);
}

inline int64_t ThreadsFor(int32_t device, int64_t most) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return ThreadsAt(std::chrono::nanoseconds(now).count(), device, most);
}

}  // namespace promptrl

#endif  // PROMPTRL_DEVICES_H_
