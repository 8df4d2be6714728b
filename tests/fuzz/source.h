/*
 * source.h - a data plugin, linked into the target, on files that the input makes.
 */
#ifndef DPB_TESTS_FUZZ_SOURCE_H
#define DPB_TESTS_FUZZ_SOURCE_H

#include "base/config.h"
#include "base/options.h"
#include "tests/fuzz/fuzz.h"

/* Opens the source with data.path = fuzz_directory() and these assignments (ended by NULL), fetches
 * the first and the last sample of each split, and closes it. */
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
        void *sample = malloc(dpb_sample_bytes(&info.format)); /* no byte more */
        FUZZ_CHECK(sample != NULL);
        bool good = true;
        for (int split = 0; split < 2; split++) {
            uint64_t ends[2] = {0, info.n_samples[split] - 1};
            for (int i = 0; i < 2 && info.n_samples[split] > 0; i++) {
                int32_t label = -1;
                if (ops->fetch(source, (dpb_split)split, 1, &ends[i], 1, sample, &label) == DPB_OK)
                    FUZZ_CHECK(label >= 0 && (uint32_t)label < info.nclass);
                else
                    good = false;
            }
        }
        free(sample);
        if (good)
            fuzz_used();
    } else {
        FUZZ_CHECK(source == NULL && dpb_first_error(NULL)[0] != '\0');
    }
    ops->close(source);
    free(options);
    dpb_config_destroy(config);
}

#endif
