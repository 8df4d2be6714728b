/*
 * source.h - a data plugin, linked into the target, on files that the input makes.
 */
#ifndef DPB_TESTS_FUZZ_SOURCE_H
#define DPB_TESTS_FUZZ_SOURCE_H

#include "base/config.h"
#include "base/options.h"
#include "tests/fuzz/fuzz.h"

static bool in_range(const int32_t *numbers, uint64_t n, uint32_t nclass)
{
    for (uint64_t i = 0; i < n; i++)
        if (numbers[i] < 0 || (uint32_t)numbers[i] >= nclass)
            return false;
    return true;
}

/* False: the sample was refused. */
static bool source_fetch(const struct dpb_data_ops *ops, void *source,
                         const struct dpb_data_info *info, dpb_split split, uint64_t index)
{
    const uint32_t n_labels = dpb_sample_labels(&info->format);
    void *sample = malloc(dpb_sample_bytes(&info->format)); /* no byte more */
    int32_t *labels = malloc(n_labels * sizeof *labels);
    FUZZ_CHECK(sample != NULL && labels != NULL);
    memset(labels, 0xff, n_labels * sizeof *labels);
    const bool good = ops->fetch(source, split, 1, &index, 1, sample, labels) == DPB_OK;
    if (good) {
        FUZZ_CHECK(in_range(labels, n_labels, info->nclass));
        if (info->format.type == DPB_INT32)
            FUZZ_CHECK(in_range(sample, n_labels, info->nclass));
    } else {
        FUZZ_CHECK(dpb_first_error(NULL)[0] != '\0');
    }
    free(sample);
    free(labels);
    return good;
}

/* The first samples of each split and the last, all of a small one. */
static bool source_fetch_all(const struct dpb_data_ops *ops, void *source,
                             const struct dpb_data_info *info)
{
    enum { MOST = 64 };
    bool good = true;
    for (int split = 0; split < 2; split++) {
        const uint64_t n = info->n_samples[split];
        for (uint64_t i = 0; i < n && i < MOST; i++)
            good &= source_fetch(ops, source, info, (dpb_split)split, i);
        if (n > MOST)
            good &= source_fetch(ops, source, info, (dpb_split)split, n - 1);
    }
    return good;
}

/* Opens the source with data.path = fuzz_directory() and these assignments (ended by NULL), fetches
 * samples of each split, and closes it. */
static void source_use(const char *const *assignments, const struct dpb_data_request *request)
{
    const struct dpb_plugin *plugin = dpb_plugin_entry(fuzz_host());
    const struct dpb_data_ops *ops = plugin->ops;
    struct dpb_config *config = dpb_config_create();
    void *options = calloc(1, plugin->options_size), *source = NULL;
    FUZZ_CHECK(dpb_config_set(config, "data", "path", fuzz_directory(), "fuzz") == DPB_OK);
    for (; *assignments; assignments++)
        FUZZ_CHECK(dpb_config_assign(config, *assignments, "fuzz") == DPB_OK);
    const struct dpb_option_table table = {"data", NULL, plugin->options, options};
    FUZZ_CHECK(dpb_options_parse_known(&table, config) == DPB_OK);
    struct dpb_data_info info;
    if (ops->open(options, request, &source, &info) == DPB_OK) {
        if (source_fetch_all(ops, source, &info))
            fuzz_used();
    } else {
        FUZZ_CHECK(source == NULL && dpb_first_error(NULL)[0] != '\0');
    }
    ops->close(source);
    free(options);
    dpb_config_destroy(config);
}

#endif
