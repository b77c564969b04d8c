#include "probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "dispatch.h"
#include "memory.h"
#include "threads.h"

namespace twostroke {

namespace {

constexpr int64_t kUnit = 512;  // bytes the read kernel takes at a time
constexpr int64_t kSmallestTimed = int64_t{16} << 20;  // small sets are read several times, so that barriers cost nothing
constexpr int64_t kFilledAtOnce = int64_t{2} << 20;
constexpr int64_t kLargestWhole = int64_t{128} << 20;  // a few milliseconds: some such passes run undisturbed
constexpr int64_t kStretch = int64_t{32} << 20;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(int num_threads, double seconds) {
    if (num_threads < 1) throw std::invalid_argument("a probe needs at least one thread");
    if (!(seconds >= 0.0)) throw std::invalid_argument("a probe's seconds must not be negative");
}

// Reads a working set over and over, always from the start as decode reads its weights, so that caches help here
// exactly as much as they help there. A kernel's time is its best pass. On a shared machine no long pass is undisturbed
// from end to end, so a large set is timed in stretches, and the best of each are added. Small sets are not: of them
// caches keep a part by luck, another one in each pass, and the sum would count every stretch as the lucky one.
class ReadProbe {
  public:
    ReadProbe(const Kernels& kernels, ThreadPool& pool, int64_t bytes, std::vector<size_t> distances)
        : kernels_(kernels), pool_(pool), distances_(std::move(distances)) {
        units_ = std::max<int64_t>(1, bytes / kUnit / pool.size());
        buffer_ = PageBuffer(static_cast<size_t>(units_ * kUnit * pool.size()));
        filled_.resize(static_cast<size_t>(pool.size()));
    }

    // Bytes per second of the best kernel. At least two passes of each, then more until `seconds` are over.
    double run(double seconds) {
        const double start = now();
        pool_.run([&](int thread) { fill(thread, start + seconds / 2); });
        const int64_t units = *std::min_element(filled_.begin(), filled_.end());
        const int64_t total = units * kUnit * pool_.size();
        const int stretches = total <= kLargestWhole ? 1 : static_cast<int>(total / kStretch);
        repeats_ = static_cast<int>(std::max<int64_t>(1, kSmallestTimed / total));
        best_.assign(distances_.size(), std::vector<double>(static_cast<size_t>(stretches), kNever));
        pool_.run([&](int thread) { read(thread, units, start + seconds); });
        double fastest = kNever;
        for (const auto& times : best_) fastest = std::min(fastest, std::accumulate(times.begin(), times.end(), 0.0));
        return static_cast<double>(total) * repeats_ / fastest;
    }

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    uint8_t* part(int thread) const { return buffer_.as(static_cast<size_t>(thread * units_ * kUnit)); }

    // The reader touches its part first, and writes: pages only read are all one page of zeros. Memory that a host has
    // yet to find can take seconds; the set is then as much of it as there is time to fill.
    void fill(int thread, double deadline) {
        int64_t& filled = filled_[static_cast<size_t>(thread)];
        while (filled < units_ && (filled * kUnit * pool_.size() < kStretch || now() < deadline)) {
            const int64_t count = std::min(units_ - filled, kFilledAtOnce / kUnit);
            std::memset(part(thread) + filled * kUnit, 1, static_cast<size_t>(count * kUnit));
            filled += count;
        }
    }

    void read(int thread, int64_t units, double deadline) {
        float sum = 0.0f;
        for (int round = 0; round < 2 || !late_; ++round) {
            for (size_t kernel = 0; kernel < distances_.size(); ++kernel) {
                const int count = static_cast<int>(best_[kernel].size());
                for (int stretch = 0; stretch < count; ++stretch) {
                    const Part p = part_of(units, stretch, count);
                    const uint8_t* data = part(thread) + p.begin * kUnit;
                    const auto bytes = static_cast<size_t>((p.end - p.begin) * kUnit);
                    pool_.barrier();
                    const double start = now();
                    for (int i = 0; i < repeats_; ++i) sum += kernels_.probe_read(data, bytes, distances_[kernel]);
                    pool_.barrier();
                    if (thread > 0) continue;
                    double& best = best_[kernel][static_cast<size_t>(stretch)];
                    best = std::min(best, now() - start);
                }
            }
            if (thread == 0) late_ = now() >= deadline;
            pool_.barrier();
        }
        volatile float kept = sum;
        (void)kept;
    }

    const Kernels& kernels_;
    ThreadPool& pool_;
    const std::vector<size_t> distances_;
    PageBuffer buffer_;
    int64_t units_ = 0;  // of one thread
    std::vector<int64_t> filled_;  // (threads), units
    int repeats_ = 0;
    std::vector<std::vector<double>> best_;  // (kernels, stretches), seconds
    bool late_ = false;  // written by thread 0 before a barrier, read after it
};

// How many rounds take about so long: short enough to run undisturbed, long enough to time.
int64_t rounds_taking(double (*kernel)(int64_t, float*), double seconds) {
    float sink[3] = {1.0f, 0.5f, 1.0f};
    for (int64_t rounds = 256;; rounds *= 2) {
        const double start = now();
        kernel(rounds, sink);
        if (now() - start >= seconds) return rounds;
    }
}

}  // namespace

double probe_read(const std::string& isa, int num_threads, size_t bytes, size_t prefetch_bytes, double seconds) {
    check(num_threads, seconds);
    std::vector<size_t> distances{0};
    if (prefetch_bytes) distances.push_back(prefetch_bytes);
    ThreadPool pool(num_threads);
    return ReadProbe(kernels_for(isa), pool, static_cast<int64_t>(bytes), std::move(distances)).run(seconds);
}

double probe_flops(const std::string& isa, int num_threads, const std::string& kind, double seconds) {
    check(num_threads, seconds);
    const Kernels& kernels = kernels_for(isa);
    if (kind != "f32" && kind != "16bit") throw std::invalid_argument("no arithmetic probe of the kind " + kind);
    const auto kernel = kind == "f32" ? kernels.probe_f32 : kernels.probe_16bit;
    const double deadline = now() + seconds;
    const int64_t rounds = rounds_taking(kernel, 0.5e-3);
    ThreadPool pool(num_threads);
    std::vector<double> flops(static_cast<size_t>(num_threads));
    double best = 0.0;
    bool late = false;  // written by thread 0 before a barrier, read after it
    pool.run([&](int thread) {
        float sink[3] = {1.0f, 0.5f, 1.0f};
        while (!late) {
            pool.barrier();
            const double start = now();
            flops[static_cast<size_t>(thread)] = kernel(rounds, sink);
            pool.barrier();
            if (thread == 0) {
                const double end = now();
                best = std::max(best, std::accumulate(flops.begin(), flops.end(), 0.0) / (end - start));
                late = end >= deadline;
            }
            pool.barrier();
        }
    });
    return best;
}

}  // namespace twostroke
