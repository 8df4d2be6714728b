/* comm_points.c - see comm_points.h. */
#include "plan/comm_points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/log.h"
#include "base/parse.h"

static const char *origin(const struct dpb_experiment *experiment, const char *key)
{
    return dpb_config_origin(experiment->config, "comm_test", key);
}

static dpb_status add(const struct dpb_experiment *experiment, const char *key, uint64_t bytes,
                      struct dpb_comm_point *points, uint32_t *n)
{
    size_t element = dpb_dtype_size(experiment->gradient_type);
    const bool sliced = experiment->settings.comm_test.operation != DPB_ALL_REDUCE;
    const uint64_t slices = sliced ? experiment->n_workers : 1; /* collectives.h: equal slices */
    uint64_t n_elements = bytes < element * slices ? slices : bytes / element / slices * slices;
    if (*n > 0 && points[*n - 1].n_elements == n_elements)
        return DPB_OK; /* sizes below an element are one */
    if (*n + 1 >= DPB_COMM_POINTS)
        return dpb_fail(DPB_USAGE, "%s: comm_test.%s: more than %d sizes; take fewer at a time",
                        origin(experiment, key), key, DPB_COMM_POINTS - 2);
    points[(*n)++] =
        (struct dpb_comm_point){.n_elements = n_elements, .bytes = n_elements * element};
    return DPB_OK;
}

static dpb_status add_list(const struct dpb_experiment *experiment, struct dpb_comm_point *points,
                           uint32_t *n)
{
    char *text = strdup(experiment->settings.comm_test.sizes), *rest = text, *word;
    dpb_status status = dpb_allocated(text);
    while (status == DPB_OK && (word = strsep(&rest, ","))) {
        char units[128];
        uint64_t bytes;
        word = dpb_trim(word, word + strlen(word));
        dpb_unit_names(dpb_size_units, units, sizeof units);
        if (dpb_parse_quantity(word, dpb_size_units, "B", &bytes) != DPB_PARSED || bytes == 0)
            status =
                dpb_fail(DPB_USAGE,
                         "%s: comm_test.sizes: '%s' is no size; it is a list as in 4 KiB,1 MiB "
                         "(units: %s), or none; a range is comm_test.min_bytes, max_bytes and "
                         "step_factor",
                         origin(experiment, "sizes"), word, units);
        else
            status = add(experiment, "sizes", bytes, points, n);
    }
    free(text);
    return status;
}

static dpb_status add_range(const struct dpb_experiment *experiment, struct dpb_comm_point *points,
                            uint32_t *n)
{
    uint64_t from = experiment->settings.comm_test.min_bytes;
    uint64_t to = experiment->settings.comm_test.max_bytes;
    uint64_t factor = (uint64_t)experiment->settings.comm_test.step_factor;
    if (from > to)
        return dpb_fail(DPB_USAGE,
                        "%s: comm_test.min_bytes = %llu is more than max_bytes = %llu (%s)",
                        origin(experiment, "min_bytes"), (unsigned long long)from,
                        (unsigned long long)to, origin(experiment, "max_bytes"));
    for (uint64_t bytes = from; bytes <= to; bytes *= factor) {
        DPB_TRY(add(experiment, "step_factor", bytes, points, n));
        if (bytes > to / factor)
            break;
    }
    return DPB_OK;
}

dpb_status dpb_comm_points(const struct dpb_experiment *experiment,
                           struct dpb_comm_point points[DPB_COMM_POINTS], uint32_t *n)
{
    const char *sizes = experiment->settings.comm_test.sizes;
    size_t element = dpb_dtype_size(experiment->gradient_type);
    *n = 0;
    if (strcmp(sizes, "none") != 0)
        DPB_TRY(sizes[0] ? add_list(experiment, points, n) : add_range(experiment, points, n));
    if (dpb_config_get(experiment->config, "model", "name") &&
        experiment->settings.comm_test.operation == DPB_ALL_REDUCE)
        points[(*n)++] = (struct dpb_comm_point){.n_elements = experiment->graph->n_elements,
                                                 .bytes = experiment->graph->n_elements * element,
                                                 .model = true};
    if (*n == 0)
        return dpb_fail(
            DPB_USAGE,
            "%s: comm_test.sizes = none and no model.name leave nothing to exchange; give "
            "one of them",
            origin(experiment, "sizes"));
    return DPB_OK;
}

uint64_t dpb_comm_memory(const struct dpb_experiment *experiment, uint32_t rank)
{
    struct dpb_comm_point points[DPB_COMM_POINTS];
    uint64_t most = 0;
    uint32_t n = 0;
    if (dpb_comm_points(experiment, points, &n) != DPB_OK)
        return 0; /* and the message is there */
    for (uint32_t i = 0; i < n; i++)
        most = points[i].n_elements > most ? points[i].n_elements : most;
    size_t element = dpb_dtype_size(experiment->weight_type);
    if (rank < experiment->n_workers)
        element += dpb_dtype_size(experiment->gradient_type);
    return most * element;
}

size_t dpb_comm_journal_bytes(const struct dpb_experiment *experiment)
{
    uint64_t iterations = (uint64_t)experiment->settings.comm_test.iterations;
    uint64_t capacity = iterations ? iterations : DPB_COMM_SAMPLES;
    return sizeof(struct dpb_comm_journal) +
           DPB_COMM_POINTS * capacity * sizeof(struct dpb_comm_sample);
}
