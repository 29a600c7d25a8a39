// Root-mean-square norm of rows (arXiv 1910.07467). The order of summation does
// not depend on the number of rows, which XLA's does.
//
//   x     [..., size]  float32; size is a multiple of a vector
//   scale [size]       float32
//   out   [..., size]  x / sqrt(mean(x^2) + eps) * scale

#include <cmath>

#include "native.h"

namespace ffi = xla::ffi;

namespace promptrl::norm {
namespace {

ffi::Error RmsNorm(int64_t threads, float eps, ffi::Buffer<ffi::F32> x,
                   ffi::Buffer<ffi::F32> scale,
                   ffi::ResultBuffer<ffi::F32> out) {
  const int64_t size = scale.element_count(), rows = x.element_count() / size;
  const float* by = scale.typed_data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x.typed_data() + row * size;
    float* to = out->typed_data() + row * size;
    Floats squares = {};
    for (int64_t i = 0; i < size; i += kLanes) {
      const Floats some = Load<Floats>(from + i);
      squares += some * some;
    }
    float sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += squares[lane];
    const float times = 1.0f / std::sqrt(sum / size + eps);
    for (int64_t i = 0; i < size; i += kLanes) {
      const Floats some = Load<Floats>(from + i) * times * Load<Floats>(by + i);
      std::memcpy(to + i, &some, sizeof(some));
    }
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace promptrl::norm

XLA_FFI_DEFINE_HANDLER_SYMBOL(rms_norm, promptrl::norm::RmsNorm,
                              xla::ffi::Ffi::Bind()
                                  .Attr<int64_t>("threads")
                                  .Attr<float>("eps")
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::F32>>()
                                  .Ret<xla::ffi::Buffer<xla::ffi::F32>>());
