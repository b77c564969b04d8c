// What multiply_panel is given: `num_slots` groups of weights (num_pairs, 16, 2) and rows of activations.
namespace twostroke {
namespace TS_ISA {

struct PanelArgs {
    const uint16_t* weights;  // each group's at a distance of kPrefillColumns columns
    int num_slots;
    const uint16_t* rows;  // (num_rows, 2 * num_pairs) at stride
    int64_t stride, num_rows, num_pairs;  // pairs: a multiple of 16
    bool is_first;  // sums begin at zero
    float* sums;  // (num_slots, kPrefillRows + kBrainRest, 16)
};

constexpr int64_t kSlotSums = (kPrefillRows + kBrainRest) * kLanes;

}  // namespace TS_ISA
}  // namespace twostroke
