// Whole blocks of the KV pools as bytes, all layers of each: how they leave and come back between steps.
#include <cstring>

#include "executor.h"

namespace twostroke {

void Executor::export_block(int group, int64_t block, uint8_t* out) const {
    std::memcpy(out, block_at(group, block), block_bytes(group));
}

void Executor::import_block(int group, int64_t block, const uint8_t* data) {
    std::memcpy(block_at(group, block), data, block_bytes(group));
}

}  // namespace twostroke
