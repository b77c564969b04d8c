// Measures what this machine can do: bytes read per second over a working set, FLOPs per second from registers.
#pragma once

#include <cstddef>
#include <string>

namespace twostroke {

// Best of repeated reads of `bytes` split over `num_threads`, for about `seconds` in all: bytes per second.
double probe_read(const std::string& isa, int num_threads, size_t bytes, size_t prefetch_bytes, double seconds);

// Best of repeated rounds on `num_threads` threads for about `seconds`: FLOPs per second. `kind` is "f32", or "16bit"
// for low-bit weights times 16-bit activations.
double probe_flops(const std::string& isa, int num_threads, const std::string& kind, double seconds);

}  // namespace twostroke
