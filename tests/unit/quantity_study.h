/*
 * quantity_study.h - rows with the values of a quantity by seed, and how often their comparison
 * holds the truth.
 */
#ifndef DPB_TESTS_UNIT_QUANTITY_STUDY_H
#define DPB_TESTS_UNIT_QUANTITY_STUDY_H

#include <jansson.h>
#include <math.h>

#include "base/json.h"
#include "dpbench/random.h"
#include "study/document/quantity.h"

/* A row that has this quantity alone. */
static json_t *quantity_row(enum dpb_quantity_id id, size_t n, const double *seeds,
                            const double *values)
{
    json_t *of_seeds = json_array(), *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(of_seeds, json_real(seeds[i]));
        json_array_append_new(list, dpb_json_real(values[i]));
    }
    return json_pack("{s:{s:o, s:o}}", "by_repeat", "seed", of_seeds, dpb_quantities[id].field,
                     list);
}

enum cover {
    COVER_NORMAL,       /* accuracies of other seeds on each side */
    COVER_TIMES,        /* times, normal by logarithms, of other seeds on each side */
    COVER_PAIRED,       /* accuracies of equal seeds, whose luck both share */
    COVER_SKEWED,       /* exponential, of equal seeds */
    COVER_SKEWED_APART, /* of other seeds, one side three times as wide */
    COVER_KINDS
};
static const char *const cover_names[COVER_KINDS] = {
    "normal, unpaired", "times, unpaired", "normal, paired", "skewed, paired", "skewed, unpaired"};

static double cover_draw(enum cover kind, uint32_t study, uint32_t i, uint32_t side)
{
    const struct dpb_random4 r = dpb_random(62, DPB_STREAM_SYNTHETIC, study, i, side, kind);
    double normal[2];
    dpb_random_normal(r.v[0], r.v[1], normal);
    const double skewed = -log(((double)r.v[2] + 1) * 0x1p-32) - 1;
    return kind >= COVER_SKEWED ? skewed : normal[0];
}

/* In how many of so many studies the interval holds the true difference. */
static int quantity_covered(enum cover kind, uint32_t n, uint32_t studies)
{
    const bool paired = kind == COVER_PAIRED || kind == COVER_SKEWED, times = kind == COVER_TIMES;
    const enum dpb_quantity_id id = times ? DPB_ENERGY : DPB_ACCURACY;
    int held = 0;
    for (uint32_t study = 0; study < studies; study++) {
        double seeds[2][10], values[2][10];
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t side = 0; side < 2; side++) {
                const double luck = paired ? cover_draw(kind, study, i, 2) : 0;
                const double width = kind == COVER_SKEWED_APART && side == 1 ? 3 : 1;
                const double own = width * cover_draw(kind, study, i, side);
                seeds[side][i] = paired ? i : 2 * i + side;
                values[side][i] = times ? exp(0.05 * own + (side == 1 ? log(1.1) : 0))
                                        : 0.8 + 0.02 * luck + 0.01 * own + 0.004 * side;
            }
        json_t *a = quantity_row(id, n, seeds[0], values[0]);
        json_t *b = quantity_row(id, n, seeds[1], values[1]);
        struct dpb_quantity_comparison c;
        const double truth = times ? 1.1 : 0.4;
        held += dpb_quantity_compare(a, b, id, 1, false, &c) && c.low <= truth && truth <= c.high;
        json_decref(a);
        json_decref(b);
    }
    return held;
}

#endif
