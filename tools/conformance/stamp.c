/* Makes the collectives' cases.  Every axis is combined in full with the operations, and with the axes that it
 * interacts with. */
#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/collective.h"
#include "conformance/input.h"
#include "conformance/number.h"

static void reduction_lines(struct check *check, const struct spec *spec)
{
    tutti_reduce_op op = spec->op;
    bool integer = number_is_integer(spec->dtype);
    if (spec->refused) {
        cases_line(check, L_R_REFUSED);
        return;
    }
    if (integer && (op == TUTTI_SUM || op == TUTTI_PRODUCT)) cases_line(check, L_R_WRAP);
    if (spec->input == INPUT_ROUNDED && tutti_dtype_bytes(spec->dtype) <= 2) cases_line(check, L_R_STEPS);
    if (spec->input == INPUT_SPECIAL && (op == TUTTI_MIN || op == TUTTI_MAX))
        cases_line(check, L_R_NAN), cases_line(check, L_R_ZEROS);
    if (op == TUTTI_AVG) cases_line(check, integer ? L_R_AVG_TRUNCATES : L_R_AVG);
    if (op == TUTTI_PREMUL_SUM) cases_line(check, L_R_PREMUL);
    if (op >= TUTTI_BAND) cases_line(check, L_R_BITWISE);
    if (spec->dtype == TUTTI_BOOL) cases_line(check, L_R_BOOL);
    if (number_is_complex(spec->dtype)) cases_line(check, L_R_COMPLEX);
}

static void add_lines(struct check *check, const struct spec *spec)
{
    const struct form *form = &forms[spec->form];
    cases_line(check, form->line);
    cases_line(check, L_R_DTYPES);
    cases_line(check, L_C_ONE_RANK);
    if (form_reduces(form)) reduction_lines(check, spec);
    if (form->pattern == REDUCE) cases_line(check, L_C_REDUCE_LEAVES);
    if (form->pattern == ALL_REDUCE && !spec->refused) cases_line(check, L_C_SAME_BITS);
    if (spec->uneven) cases_line(check, form->list ? L_C_UNEVEN : L_C_SPLITS);
    if (spec->count == 0) cases_line(check, L_C_ZERO);
    if (spec->placement == UNALIGNED) cases_line(check, L_C_UNALIGNED);
    if (spec->placement == IN_PLACE)
        cases_line(check, form->pattern == ALL_REDUCE || form->pattern == REDUCE || form->pattern == ALL_TO_ALL ||
                                  form_scans(form)
                              ? L_C_IN_PLACE
                              : L_C_OWN_SLICE);
    if (spec->where == MEMBERS_ONLY) cases_line(check, L_G_MEMBERS_ONLY);
    if (spec->where == SPLIT) cases_line(check, L_G_SPLIT);
    if (spec->where == REVERSED) cases_line(check, L_G_NEW);
    if (spec->where != WORLD && form->rooted) cases_line(check, L_G_RANKS);
}

static bool is_defined(const struct form *form, tutti_dtype dtype, tutti_reduce_op op)
{
    return number_reduces(dtype, op) && !(form_scans(form) && op == TUTTI_AVG);
}

static void add(struct cases *cases, const struct options *options, struct spec spec)
{
    const struct form *form = &forms[spec.form];
    char name[CASE_NAME_MAX], op[32] = "";
    bool reduces = form_reduces(form);
    if (spec.placement == IN_PLACE && (form->one || (form->pattern == ALL_TO_ALL && spec.uneven))) return;
    if (spec.uneven && !form->uneven) return;
    if (!reduces) spec.input = INPUT_BITS, spec.op = TUTTI_SUM;
    spec.refused = reduces && !is_defined(form, spec.dtype, spec.op);
    if (reduces) snprintf(op, sizeof op, "/%s-%s", tutti_reduce_op_name(spec.op), input_names[spec.input]);
    snprintf(name, sizeof name, "%s%s/%lld%s/%s/%s/%s", tutti_dtype_name(spec.dtype), op, (long long)spec.count,
             spec.uneven ? "+" : "", placement_names[spec.placement], spec.async ? "async" : "blocking",
             where_names[spec.where]);
    struct check *check = cases_add(cases, options, form->name, name, collective_run);
    if (check == NULL) return;
    check->spec = spec;
    check->same_bits = form->pattern == ALL_REDUCE && !spec.refused && spec.where != SPLIT;
    add_lines(check, &spec);
}

/* Varies the axes that a table leaves open from case to case, so that all values of both are combined. */
static void turn(struct spec *spec, unsigned *turns)
{
    unsigned t = (*turns)++;
    spec->placement = (int)(t % PLACEMENTS);
    if (spec->placement == IN_PLACE && forms[spec->form].one) spec->placement = UNALIGNED;
    spec->async = t / 3 % 2;
    spec->where = (enum where)(t / 6 % GROUPS);
}

/* Combines dtype x reduce op x input, with odd counts. */
static void stamp_dtypes(struct cases *cases, const struct options *options, int form)
{
    static const int64_t counts[] = {37, 1009, 1, 5003};
    int n_counts = options->quick ? 1 : 4, n_ops = form_reduces(&forms[form]) ? TUTTI_REDUCE_OP_COUNT : 1;
    unsigned turns = (unsigned)form;
    for (int d = 0; d < DTYPES; d++)
        for (int op = 0; op < n_ops; op++)
            for (int input = INPUT_EXACT; input < INPUTS; input++) {
                tutti_dtype dtype = number_dtypes[d];
                bool real = number_is_float(dtype),
                     reduces = n_ops > 1 && is_defined(&forms[form], dtype, (tutti_reduce_op)op);
                if (input != INPUT_EXACT && (!real || !reduces)) continue;
                if (input == INPUT_SPECIAL && options->cuda) continue; /* NCCL's MIN and MAX drop NaN */
                if (input == INPUT_ROUNDED && op != TUTTI_SUM && op != TUTTI_PRODUCT) continue;
                for (int c = 0; c < n_counts; c++) {
                    struct spec spec = {
                        .form = form, .dtype = dtype, .op = (tutti_reduce_op)op, .input = input, .count = counts[c]};
                    turn(&spec, &turns);
                    add(cases, options, spec);
                }
            }
}

/* Combines size x placement x blocking or async x group x even or uneven. */
static void stamp_shapes(struct cases *cases, const struct options *options, int form, tutti_dtype dtype)
{
    static const int64_t quick[] = {0, 1, 3, 1000, 70001},
                         full[] = {0, 1, 2, 3, 7, 64, 1000, 4099, 30011, 70001, 300007, 1500007};
    int n = options->quick ? (int)(sizeof quick / sizeof *quick) : (int)(sizeof full / sizeof *full);
    for (int c = 0; c < n; c++)
        for (int placement = 0; placement < PLACEMENTS; placement++)
            for (int more = 0; more < 4 * GROUPS; more++) {
                struct spec spec = {
                    .form = form, .dtype = dtype, .op = TUTTI_SUM, .input = INPUT_EXACT, .placement = placement};
                spec.count = options->quick ? quick[c] : full[c];
                spec.async = more & 1;
                spec.uneven = more & 2;
                spec.where = (enum where)(more / 4);
                if (spec.count > 100000 && spec.where != WORLD) continue;
                if (spec.count > 1000000 && (dtype != TUTTI_INT32 || spec.async != (placement & 1))) continue;
                if (options->quick && spec.count == 70001 && (more / 4 + more + placement) % 3 != 0) continue;
                add(cases, options, spec);
            }
}

static void stamp_large(struct cases *cases, const struct options *options, int form)
{
    static const int64_t counts[] = {2 << 20, 16 << 20}; /* of float32: about 8 MiB and 64 MiB in total */
    int parts = forms[form].pattern == BROADCAST || forms[form].pattern == ALL_REDUCE ||
                        forms[form].pattern == REDUCE || form_scans(&forms[form])
                    ? 1
                    : 8;
    for (int c = 0; c < (options->quick ? 0 : 2); c++)
        add(cases, options,
            (struct spec){.form = form,
                          .dtype = TUTTI_FLOAT32,
                          .op = TUTTI_SUM,
                          .input = INPUT_EXACT,
                          .count = counts[c] / parts,
                          .async = c == 0,
                          .uneven = forms[form].uneven});
}

void collective_cases(struct cases *cases, const struct options *options)
{
    for (int form = 0; form < FORMS; form++) {
        stamp_shapes(cases, options, form, TUTTI_INT32);
        if (!options->quick) stamp_shapes(cases, options, form, TUTTI_FLOAT64);
        stamp_dtypes(cases, options, form);
        stamp_large(cases, options, form);
    }
}
