// The kernels compiled for avx2. Nothing here may include a header with inline code shared between instruction sets.
#define TS_ISA avx2
#include "../ops.h"
#include "../simd/avx2.h"
#include "../kernels/math.h"
#include "../kernels/moments.h"
#include "../kernels/rows.h"
#include "../kernels/panels.h"
#include "../kernels/codebooks.h"
#include "../kernels/linear_output.h"
#include "../kernels/weigh.h"
#include "../kernels/linear.h"
#include "../kernels/linear_bytes.h"
#include "../kernels/linear_unpacked.h"
#include "../kernels/attention.h"
#include "../kernels/quantize.h"
#include "../kernels/probe.h"
#include "../kernels/table.h"

namespace twostroke {
Kernels avx2_kernels() {
    Kernels k = avx2::make_table("avx2");
    k.linear = avx2::linear_by_rows;
    return k;
}
}  // namespace twostroke
