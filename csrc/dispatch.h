// Which instruction sets this machine has, found once.
#pragma once

#include <string>
#include <vector>

#include "ops.h"

namespace twostroke {

// Usable instruction sets, slowest first: "scalar", "avx2", "avx512", "amx".
std::vector<std::string> available_isas();

// For tests: from now on kernels_for() has amx, of a process that emulates tiles; available_isas() stays as it is. Not for
// more than one thread. Throws std::invalid_argument where the machine lacks anything else that amx uses.
void emulate_amx();

// Kernels of one of them. Throws std::invalid_argument where the machine lacks it.
const Kernels& kernels_for(const std::string& isa);

}  // namespace twostroke
