// Page-aligned memory, on huge pages where the system gives them; zero-filled, returned to the system when freed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace twostroke {

class PageBuffer {
  public:
    PageBuffer() = default;
    explicit PageBuffer(size_t bytes) {
        if (bytes == 0) return;
        constexpr size_t kHugePage = size_t{2} << 20;
        // Over-allocated, so that the data can start on a huge-page border; untouched pages cost nothing.
        mapped_ = bytes >= kHugePage ? bytes + kHugePage : bytes;
        map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map_ == MAP_FAILED) {
            map_ = nullptr;
            throw std::bad_alloc();
        }
        auto address = reinterpret_cast<size_t>(map_);
        if (bytes >= kHugePage) address = (address + kHugePage - 1) / kHugePage * kHugePage;
        data_ = reinterpret_cast<unsigned char*>(address);
        bytes_ = bytes;
#ifdef MADV_HUGEPAGE
        if (bytes >= kHugePage) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
    }
    ~PageBuffer() {
        if (map_) munmap(map_, mapped_);
    }
    PageBuffer(PageBuffer&& other) noexcept { swap(other); }
    PageBuffer& operator=(PageBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    PageBuffer(const PageBuffer&) = delete;
    PageBuffer& operator=(const PageBuffer&) = delete;

    template <class T = unsigned char>
    T* as(size_t byte_offset = 0) const {
        return reinterpret_cast<T*>(data_ + byte_offset);
    }
    size_t bytes() const { return bytes_; }

  private:
    void swap(PageBuffer& other) {
        std::swap(map_, other.map_);
        std::swap(mapped_, other.mapped_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }

    void* map_ = nullptr;
    size_t mapped_ = 0, bytes_ = 0;
    unsigned char* data_ = nullptr;
};

// Many pieces of memory taken one after another from large buffers: small matrices share huge pages, and those that are
// read one after another lie one after another. Given back all at once.
class PageArena {
  public:
    unsigned char* take(size_t bytes) {
        constexpr size_t kChunk = size_t{256} << 20, kAlign = 64;
        bytes = (bytes + kAlign - 1) / kAlign * kAlign;
        if (buffers_.empty() || used_ + bytes > buffers_.back().bytes()) {
            buffers_.emplace_back(bytes > kChunk ? bytes : kChunk);  // untouched pages cost nothing
            used_ = 0;
        }
        unsigned char* piece = buffers_.back().as(used_);
        used_ += bytes;
        total_ += bytes;
        if (stretches_.size() < buffers_.size()) stretches_.emplace_back(piece, 0);
        stretches_.back().second = used_;
        return piece;
    }

    // What was taken, as a few long stretches: start and bytes.
    const std::vector<std::pair<unsigned char*, size_t>>& stretches() const { return stretches_; }
    size_t total() const { return total_; }

  private:
    std::vector<PageBuffer> buffers_;
    std::vector<std::pair<unsigned char*, size_t>> stretches_;
    size_t used_ = 0, total_ = 0;
};

}  // namespace twostroke
