// Tiles of Intel's Advanced Matrix Extensions: registers of 16 rows of 64 bytes, with
// instructions that multiply two of them.
//
// Tiles 0 to 3 hold sums, 4 and 5 rows of numbers, 6 and 7 weights, so that two
// times 16 rows are multiplied by 32 outputs at a time:
//
//   0 1   +=   4   x   6 7
//   2 3        5

#ifndef PROMPTRL_TILES_H_
#define PROMPTRL_TILES_H_

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define PROMPTRL_TILES 1

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace promptrl::tiles {

constexpr int kRows = 16;   // of a tile, at most
constexpr int kWords = 16;  // of a row of a tile, of 4 bytes
// Rows of numbers that are multiplied by all panels before the next ones, in
// bytes, so that they stay in the cache of a core.
constexpr int64_t kBytesAtOnce = 1 << 19;

// Whether this process may use tiles; the kernel of Linux is asked once.
inline bool AreAllowed() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // of <asm/prctl.h>
  static const bool is_granted =
      syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return is_granted;
}

// Sets the shapes of a thread's tiles: so many rows of numbers, up to 16, and weights
// of 16 words of each of 16 outputs.
class Shapes {
 public:
  explicit Shapes(int64_t rows) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int i = 0; i < 8; ++i) {
      shapes.bytes[i] = 4 * kWords;
      shapes.rows[i] = i < 6 ? rows : kWords;
    }
    // Some compilers do not know that all of it is read.
    asm volatile("" : : "m"(shapes));
    _tile_loadconfig(&shapes);
  }
  ~Shapes() { _tile_release(); }
};

// To be called before tiles are loaded: some compilers do not know that this reads
// memory, and could write it later.
inline void MakeWritten() { asm volatile("" : : : "memory"); }

}  // namespace promptrl::tiles

#endif  // tiles

#endif  // PROMPTRL_TILES_H_
