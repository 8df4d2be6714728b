/* result_numbers.c - numbers of a result, which must be finite; see result_parts.h. */
#include <math.h>
#include <stdio.h>

#include "study/json.h"
#include "study/result_parts.h"

json_t *dpb_result_real(struct dpb_result_maker *maker, double value, const char *name)
{
    if (!isfinite(value) && maker->counting && maker->n_not_finite++ == 0)
        snprintf(maker->first_not_finite, sizeof maker->first_not_finite, "%s", name);
    return dpb_json_real(value);
}

json_t *dpb_result_breakdown(struct dpb_result_maker *maker, const struct dpb_breakdown *breakdown)
{
    json_t *json = json_object();
    for (size_t i = 0; i < DPB_BREAKDOWN; i++)
        json_object_set_new(json, dpb_breakdown_names[i],
                            dpb_result_real(maker, breakdown->parts[i], "breakdown_ns"));
    return json;
}

json_t *dpb_result_times(struct dpb_result_maker *maker, const struct dpb_stats *times,
                         const char *name)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}",                 //
                     "mean", dpb_result_real(maker, times->mean, name),     //
                     "stddev", dpb_result_real(maker, times->stddev, name), //
                     "p10", dpb_result_real(maker, times->p10, name),       //
                     "median", dpb_result_real(maker, times->median, name), //
                     "p90", dpb_result_real(maker, times->p90, name),       //
                     "p99", dpb_result_real(maker, times->p99, name),       //
                     "max", dpb_result_real(maker, times->max, name));
}
