// Which instruction sets this machine has, found once.
#pragma once

#include <string>
#include <vector>

#include "ops.h"

namespace twostroke {

// Usable instruction sets, slowest first: "scalar", "avx2", "avx512", "amx".
std::vector<std::string> available_isas();

// Kernels of one of them. Throws std::invalid_argument where the machine lacks it.
const Kernels& kernels_for(const std::string& isa);

}  // namespace twostroke
