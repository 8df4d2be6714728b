/* signed_rank.c - see signed_rank.h. */
#include "study/document/signed_rank.h"

#include <math.h>

#include "base/stats.h"
#include "record/estimate.h"

enum { MOST_SUM = DPB_LOOK_UNITS * (DPB_LOOK_UNITS + 1) / 2 };

/* From 10 units: W at which a look, and the last look, decides. Found by 10^8 series of random
 * signs and ranks; that of 10 units is exact. Row n holds after looks at all units before n that
 * are due. tests/unit/test_signed_rank.c draws them again. */
static const struct {
    uint16_t due, last; /* due = 0: no look */
} criticals[] = {
    {53, 47}, {0, 56},    {0, 65},    {0, 74},  {92, 85}, {0, 96},    {0, 107},   /* 10 to 16 */
    {0, 119}, {141, 132}, {0, 146},   {0, 160}, {0, 175}, {199, 190}, {0, 206},   /* 17 to 23 */
    {0, 223}, {0, 241},   {266, 259}, {0, 278}, {0, 298}, {0, 319},   {340, 340}, /* 24 to 30 */
};
_Static_assert(sizeof criticals / sizeof *criticals == DPB_LOOK_UNITS - DPB_LOOK_FIRST + 1,
               "a row for each number of units");

/* ---- the test ------------------------------------------------------------------------------ */

double dpb_signed_rank_tail(size_t n, uint32_t w)
{
    double share[MOST_SUM + 1] = {1}, tail = 0; /* by W, of all signs */
    const size_t most = n * (n + 1) / 2;
    for (size_t rank = 1; rank <= n; rank++)
        for (size_t sum = rank * (rank + 1) / 2 + 1; sum-- > 0;)
            share[sum] = 0.5 * (share[sum] + (sum >= rank ? share[sum - rank] : 0));
    for (size_t sum = most + 1; sum-- > w;)
        tail += share[sum];
    return tail;
}

uint32_t dpb_signed_rank_critical(size_t n, double level)
{
    uint32_t critical = (uint32_t)(n * (n + 1) / 2) + 1;
    while (critical > 0 && dpb_signed_rank_tail(n, critical - 1) <= level)
        critical--;
    return critical;
}

void dpb_signed_rank_centre(const double *x, size_t n, uint32_t critical, struct dpb_centre *centre)
{
    double means[MOST_SUM]; /* W is the number of those above the centre */
    size_t n_means = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k <= i; k++)
            means[n_means++] = 0.5 * (x[i] + x[k]);
    dpb_sort(means, n_means);
    const bool known = critical <= n_means;
    *centre = (struct dpb_centre){
        .n = n,
        .estimate = n > 0 ? dpb_quantile_of_sorted(means, n_means, 0.5) : NAN,
        .low = known ? means[n_means - critical] : NAN,
        .high = known ? means[critical - 1] : NAN,
    };
}

/* ---- looks --------------------------------------------------------------------------------- */

size_t dpb_look_units(const double *x, size_t n, size_t planned, double units[DPB_LOOK_UNITS])
{
    const size_t each = planned > 0 ? (planned + DPB_LOOK_UNITS - 1) / DPB_LOOK_UNITS : 1;
    size_t n_units = 0, n_in = 0;
    double sum = 0;
    for (size_t i = 0; i < n && n_units < DPB_LOOK_UNITS; i++) {
        if (!isfinite(x[i]))
            continue;
        sum += x[i];
        if (++n_in < each)
            continue;
        units[n_units++] = sum / (double)each;
        sum = 0;
        n_in = 0;
    }
    return n_units;
}

bool dpb_look_is_due(size_t n)
{
    return n >= DPB_LOOK_FIRST && n <= DPB_LOOK_UNITS && criticals[n - DPB_LOOK_FIRST].due > 0;
}

void dpb_look_at(const double *units, size_t n, bool last, struct dpb_centre *centre)
{
    if (n >= DPB_LOOK_FIRST) {
        const uint32_t due = criticals[n - DPB_LOOK_FIRST].due;
        const uint32_t none = (uint32_t)(n * (n + 1) / 2) + 1;
        dpb_signed_rank_centre(units, n,
                               last      ? criticals[n - DPB_LOOK_FIRST].last
                               : due > 0 ? due
                                         : none,
                               centre);
        return;
    }
    struct dpb_estimate mean;
    dpb_estimate_of(units, n, &mean);
    const double half = last && n > 1 ? dpb_student(mean.freedom) * mean.error : NAN;
    *centre = (struct dpb_centre){n, mean.mean, mean.mean - half, mean.mean + half};
}

enum dpb_look dpb_look_decides(const struct dpb_centre *centre, double at)
{
    return centre->high < at ? DPB_LOOK_BELOW : centre->low > at ? DPB_LOOK_ABOVE : DPB_LOOK_OPEN;
}
