// The kernels compiled for scalar. Nothing here may include a header with inline code shared between instruction sets.
#define TS_ISA scalar
#include "../ops.h"
#include "../simd/scalar.h"
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
Kernels scalar_kernels() { return scalar::make_table("scalar"); }
}  // namespace twostroke
