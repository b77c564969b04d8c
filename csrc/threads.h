// Persistent workers: they spin briefly between steps and inside barriers, then park or yield.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace twostroke {

class ThreadPool {
  public:
    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return num_threads_; }

    // Runs work(thread) on every thread, the caller being thread 0; returns when all are done. One caller at a time.
    void run(const std::function<void(int)>& work);

    // Inside run(): waits until every thread is here.
    void barrier();

  private:
    void worker(int thread);

    const int num_threads_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* work_ = nullptr;
    alignas(64) std::atomic<uint32_t> round_{0};
    alignas(64) std::atomic<int> running_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
    std::atomic<bool> stop_{false};
    std::atomic<int> parked_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
};

// Part `index` of `count` nearly equal parts of 0..total.
struct Part {
    int64_t begin, end;
};
inline Part part_of(int64_t total, int index, int count) {
    return {total * index / count, total * (index + 1) / count};
}

}  // namespace twostroke
