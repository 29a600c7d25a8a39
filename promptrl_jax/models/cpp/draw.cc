// Draws a token per row. The order of summation does not depend on the number of
// rows, which XLA's does.
//
//   logits      [rows, size]  float32; very small for a token that is not drawn
//   temperature [rows]        0: the most probable token, the first of equal ones
//   uniform     [rows]        in [0, 1), inverts the cumulative distribution
//   tokens      [rows]        int32
//   logps       [rows]        log-probs of the tokens under softmax(logits)

#include <algorithm>
#include <cmath>
#include <vector>

#include "native.h"

namespace ffi = xla::ffi;

namespace promptrl::draw {
namespace {

constexpr int64_t kAtOnce = 16 * kLanes;  // numbers whose sum is kept

// The sum of exp(x - largest) over `count` numbers.
float SumExp(const float* x, int64_t count, float largest) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    sums += Exp(Load<Floats>(x + i) - largest);
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  for (; i < count; ++i) sum += Exp(Floats{} + (x[i] - largest))[0];
  return sum;
}

// The first place where the sum of exp(x - largest) exceeds `target`, or the
// last one that has any probability.
int64_t Place(const float* x, int64_t count, float largest, float target) {
  int64_t place = 0;
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float some = Exp(Floats{} + (x[i] - largest))[0];
    if (some == 0) continue;
    place = i;
    if ((sum += some) > target) break;
  }
  return place;
}

ffi::Error Draw(int64_t threads, ffi::Buffer<ffi::F32> logits,
                ffi::Buffer<ffi::F32> temperature, ffi::Buffer<ffi::F32> uniform,
                ffi::ResultBuffer<ffi::S32> tokens,
                ffi::ResultBuffer<ffi::F32> logps) {
  const int64_t rows = logits.dimensions()[0], size = logits.dimensions()[1];
  std::vector<float> sums((size + kAtOnce - 1) / kAtOnce);
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = logits.typed_data() + row * size;
    int64_t token = std::max_element(x, x + size) - x;
    const float largest = x[token];
    float total = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t start = i * kAtOnce;
      sums[i] = SumExp(x + start, std::min(kAtOnce, size - start), largest);
      total += sums[i];
    }
    if (temperature.typed_data()[row] > 0) {
      float left = uniform.typed_data()[row] * total;
      size_t last = 0;  // with any probability
      size_t i = 0;
      for (; i < sums.size(); ++i) {
        if (sums[i] == 0) continue;
        last = i;
        if (left < sums[i]) break;
        left -= sums[i];
      }
      // Rounding may step past the end.
      const int64_t start = last * kAtOnce;
      token = start + Place(x + start, std::min(kAtOnce, size - start), largest,
                            i < sums.size() ? left : INFINITY);
    }
    tokens->typed_data()[row] = token;
    logps->typed_data()[row] = x[token] - largest - std::log(total);
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace promptrl::draw

XLA_FFI_DEFINE_HANDLER_SYMBOL(draw, promptrl::draw::Draw,
                              xla::ffi::Ffi::Bind()
                                  .Attr<int64_t>("threads")
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>());
