/* fuzz_ini.c - an .ini file, through core's option tables, to JSON and back. */
#include "base/config.h"
#include "base/options.h"
#include "base/settings.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_SECTIONS = 32 };

static size_t tables_of(struct dpb_settings *settings, struct dpb_option_table *tables)
{
    FUZZ_CHECK(dpb_settings_n_sections <= MOST_SECTIONS);
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        tables[i] = (struct dpb_option_table){.section = dpb_settings_sections[i].name,
                                              .rows = dpb_settings_sections[i].rows,
                                              .values = settings};
    return dpb_settings_n_sections;
}

/* What was read comes back from JSON as it was. */
static void check_round_trip(const struct dpb_config *config)
{
    json_t *json = dpb_config_to_json(config);
    struct dpb_config *copy = dpb_config_create();
    FUZZ_CHECK(json && copy && dpb_config_from_json(copy, json, "round trip") == DPB_OK);
    FUZZ_CHECK(copy->n_settings == config->n_settings);
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        const struct dpb_setting *again = dpb_config_get(copy, setting->section, setting->key);
        FUZZ_CHECK(again && strcmp(again->value, setting->value) == 0);
    }
    dpb_config_destroy(copy);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dpb_settings settings;
    struct dpb_option_table tables[MOST_SECTIONS];
    fuzz_begin();
    struct dpb_config *config = dpb_config_create();
    if (dpb_config_read(config, fuzz_file(data, size)) == DPB_OK) {
        size_t n = tables_of(&settings, tables);
        check_round_trip(config);
        if (dpb_options_parse(tables, n, config) == DPB_OK)
            fuzz_used();
        for (size_t i = 0; i < n; i++)
            dpb_options_parse_known(&tables[i], config);
        json_decref(dpb_options_effective(tables, n, config));
        struct dpb_config *copy = dpb_config_copy(config);
        dpb_config_destroy(copy);
    } else {
        FUZZ_CHECK(config->n_settings == 0);
        FUZZ_CHECK(dpb_first_error(NULL)[0] != '\0');
    }
    dpb_config_destroy(config);
    fuzz_close();
    return 0;
}
