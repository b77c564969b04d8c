// Measures what this machine can do: bytes read per second over a working set, FLOPs per second from registers.
#pragma once

#include <cstddef>
#include <string>

namespace twostroke {

// Bytes per second of reading `bytes`, split over `num_threads`, again and again from the start, in `seconds` in all,
// allocation included, or as long as two passes take. The best of two kernels, one without software prefetch and one
// that prefetches `prefetch_bytes` ahead (0: the first alone). A set that cannot be filled in half the time is read as
// far as it was.
// Throws std::invalid_argument for an unknown instruction set or numbers out of range, std::bad_alloc.
double probe_read(const std::string& isa, int num_threads, size_t bytes, size_t prefetch_bytes, double seconds);

// FLOPs per second from registers: the best of repeated rounds on `num_threads` threads for about `seconds`. `kind` is
// "f32", or "16bit" for low-bit weights times 16-bit activations. Throws std::invalid_argument.
double probe_flops(const std::string& isa, int num_threads, const std::string& kind, double seconds);

}  // namespace twostroke
