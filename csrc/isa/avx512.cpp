// The kernels compiled for avx512. Nothing here may include a header with inline code shared between instruction sets.
#define TS_ISA avx512
#include "../ops.h"
#include "../simd/avx512.h"
#include "../kernels/math.h"
#include "../kernels/moments.h"
#include "../kernels/rows.h"
#include "../kernels/panels.h"
#include "../kernels/codebooks.h"
#include "../kernels/linear_output.h"
#include "../kernels/weigh.h"
#include "../kernels/linear.h"
#include "../kernels/attention.h"
#include "../kernels/quantize.h"
#include "../kernels/probe.h"
#include "../kernels/table.h"

namespace twostroke {
Kernels avx512_kernels() { return avx512::make_table("avx512"); }
}  // namespace twostroke
