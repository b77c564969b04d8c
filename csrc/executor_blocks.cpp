// Whole blocks of the KV pools as bytes, layer after layer: how they leave and come back between steps.
#include <cstring>

#include "executor.h"

namespace twostroke {

template <class Copy>
void Executor::for_layers(int group, int64_t block, Copy&& copy) const {
    size_t done = 0;
    for (const auto& op : token_ops_) {
        const auto* attention = std::get_if<AttentionOp>(&op);
        if (attention == nullptr || attention->group != group) continue;
        const size_t bytes = attention->layout.block_bytes();
        copy(pools_[static_cast<size_t>(group)].as(attention->pool_offset + static_cast<size_t>(block) * bytes), done,
             bytes);
        done += bytes;
    }
}

void Executor::export_block(int group, int64_t block, uint8_t* out) const {
    for_layers(group, block, [&](const uint8_t* at, size_t done, size_t bytes) { std::memcpy(out + done, at, bytes); });
}

void Executor::import_block(int group, int64_t block, const uint8_t* data) {
    for_layers(group, block, [&](uint8_t* at, size_t done, size_t bytes) { std::memcpy(at, data + done, bytes); });
}

}  // namespace twostroke
