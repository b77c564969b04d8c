// From a file's rows to packed groups of 16 rows.
#pragma once

#include "ops.h"

namespace twostroke {

// Bytes of one packed group of 16 rows of `cols` columns.
size_t packed_group_bytes(TensorType type, int64_t cols);

// Packs rows [16 * group, 16 * group + 16) of a (rows, cols) tensor; rows past the end become zeros.
void pack_group(TensorType type, const uint8_t* source, int64_t rows, int64_t cols, int64_t group, uint8_t* out);

}  // namespace twostroke
