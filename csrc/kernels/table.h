// The table of this instruction set's kernels. Included last by isa/*.cpp.
namespace twostroke {
namespace TS_ISA {

static Kernels make_table(const char* name) {
    Kernels k{};
    k.name = name;
    k.quantize_rows = quantize_rows;
    k.linear = linear;
    k.unpack_row = unpack_row;
    k.normalize = normalize;
    k.rope = rope;
    k.store_kv = store_kv;
    k.attend = attend;
    k.merge = merge;
    k.finish = finish;
    k.elementwise = elementwise;
    k.accumulate = accumulate;
    k.quantize_blocks = quantize_blocks;
    k.argmax = argmax;
    k.sum_exp = sum_exp;
    k.probe_read = probe_read;
    k.probe_f32 = probe_f32;
    k.probe_16bit = probe_16bit;
    return k;
}

}  // namespace TS_ISA
}  // namespace twostroke
