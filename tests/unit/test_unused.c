/*
 * test_unused.c - settings that do nothing beside the others: for each option of core and of all
 * plugins that needs another, with all of its needs off, and with each of them alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "lib/own.h"
#include "lib/test.h"
#include "plan/experiment.h"
#include "plan/unused.h"
#include "plugin/plugins.h"

/* An experiment as far as options go: core's tables, and the one of a plugin. */
static struct dpb_experiment experiment;

static void add_table(const char *section, const struct dpb_option *rows, void *values)
{
    experiment.tables[experiment.n_tables++] =
        (struct dpb_option_table){section, NULL, rows, values};
}

static void make_experiment(const struct dpb_plugin *plugin)
{
    memset(&experiment, 0, sizeof experiment);
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        add_table(dpb_settings_sections[i].name, dpb_settings_sections[i].rows,
                  &experiment.settings);
    if (plugin)
        add_table(dpb_plugin_place[plugin->kind].section, plugin->options,
                  own_memory(calloc(1, plugin->options_size + 1), free));
}

static void set_from(const char *name, const char *value, dpb_setting_from from)
{
    char section[64];
    const char *dot = strchr(name, '.');
    snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    assert_int_equal(dpb_config_set(experiment.config, section, dot + 1, value, "here"), DPB_OK);
    dpb_config_mark(experiment.config, section, dot + 1, from);
}

/* ---- values -------------------------------------------------------------------------------- */

/* A value that is not the default, and is not off. */
static const char *other_value(const struct dpb_option *row)
{
    static char text[64];
    switch (row->type) {
    case DPB_OPT_BOOL:
        return strcmp(row->def, "yes") == 0 ? "no" : "yes";
    case DPB_OPT_CHOICE:
        return row->choices[strcmp(row->choices[0], row->def) == 0];
    case DPB_OPT_STRING:
        return "x";
    case DPB_OPT_TIME:
        return "1s";
    default:
        snprintf(text, sizeof text, row->type == DPB_OPT_REAL ? "%.17g" : "%.0f",
                 row->max > row->min ? row->max : 1);
        return text;
    }
}

/* A value that a need does not list; of a need without a list, one that is off. */
static const char *unlisted(const struct dpb_option *row, const char *list)
{
    static char text[64];
    if (!list && row->type == DPB_OPT_STRING)
        return row->def && strcmp(row->def, "none") == 0 ? "none" : "";
    if (!list && row->type != DPB_OPT_BOOL) {
        snprintf(text, sizeof text, "%.17g", row->min > 0 ? row->min : 0);
        return text;
    }
    if (row->type == DPB_OPT_BOOL)
        return list && strcmp(list, "no") == 0 ? "yes" : "no";
    for (size_t i = 0; row->choices[i]; i++)
        if (!dpb_text_lists(list, ", ", row->choices[i], strlen(row->choices[i])))
            return row->choices[i];
    fail_msg("%s = %s: all that it can be", row->name, list);
    return NULL;
}

struct need {
    char name[64], list[128]; /* SECTION.KEY; the values */
    bool has_list;
    const struct dpb_option *row;
};

/* Fails if the text is in another form, or names what there is not. */
static size_t read_needs(const char *text, struct need needs[4])
{
    char copy[256], *rest = NULL;
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s or ", text);
    for (char *word = copy, *end; (end = strstr(word, " or ")); word = rest) {
        struct need *need = &needs[n++];
        *end = '\0';
        rest = end + 4;
        char *list = strstr(word, " = ");
        need->has_list = list != NULL;
        snprintf(need->list, sizeof need->list, "%s", list ? list + 3 : "");
        snprintf(need->name, sizeof need->name, "%.*s", (int)(list ? list - word : end - word),
                 word);
        need->row = NULL;
        for (size_t t = 0; t < experiment.n_tables && !need->row; t++) {
            const struct dpb_option_table *table = &experiment.tables[t];
            const size_t length = strlen(table->section);
            if (strncmp(need->name, table->section, length) == 0 && need->name[length] == '.')
                need->row = dpb_options_find(table->rows, need->name + length + 1);
        }
        if (!need->row)
            fail_msg("'%s' needs %s, which is no option", text, need->name);
    }
    return n;
}

/* ---- each option --------------------------------------------------------------------------- */

static dpb_status check(void)
{
    dpb_first_error_clear();
    dpb_warnings_clear();
    for (size_t t = 0; t < experiment.n_tables; t++)
        if (dpb_options_parse_known(&experiment.tables[t], experiment.config) != DPB_OK)
            fail_msg("%s", dpb_first_error(NULL));
    return dpb_unused_by_needs(&experiment);
}

static size_t n_warnings(void)
{
    const char *code, *text;
    size_t n = 0;
    for (; dpb_warning_at(n, &code, &text); n++)
        assert_string_equal(code, "unused_setting");
    return n;
}

static void turn_off(const struct need *needs, size_t n, dpb_setting_from from)
{
    for (size_t i = 0; i < n; i++)
        set_from(needs[i].name, unlisted(needs[i].row, needs[i].has_list ? needs[i].list : NULL),
                 from);
}

/* The option with its needs off, by whom; refused, or a warning. */
static void expect_unused(const char *name, const struct dpb_option *row, const struct need *needs,
                          size_t n)
{
    static const struct {
        dpb_setting_from option, needs;
        bool refused;
    } cases[] = {
        {DPB_FROM_FILE, DPB_FROM_FILE, true},       {DPB_FROM_COMMAND, DPB_FROM_FILE, true},
        {DPB_FROM_COMMAND, DPB_FROM_COMMAND, true}, {DPB_FROM_AXIS, DPB_FROM_FILE, true},
        {DPB_FROM_FILE, DPB_FROM_COMMAND, false},   {DPB_FROM_FILE, DPB_FROM_AXIS, false},
        {DPB_FROM_COMMAND, DPB_FROM_AXIS, false},   {DPB_FROM_DOCUMENT, DPB_FROM_DOCUMENT, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char part[256];
        set_from(name, other_value(row), cases[i].option);
        turn_off(needs, n, cases[i].needs);
        const dpb_status status = check();
        snprintf(part, sizeof part, "here: %s = %s does nothing: it needs ", name,
                 other_value(row));
        if (cases[i].refused != (status == DPB_USAGE) ||
            (cases[i].refused && !strstr(dpb_first_error(NULL), part)))
            fail_msg("%s, case %zu: status %d, %s", name, i, status, dpb_first_error(NULL));
        assert_int_equal(n_warnings(), cases[i].refused ? 0 : 1);
    }
}

static void expect_used(const char *name, const struct dpb_option *row, const struct need *needs,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char first[64];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(needs[i].list, ","), needs[i].list);
        set_from(name, other_value(row), DPB_FROM_FILE);
        turn_off(needs, n, DPB_FROM_FILE);
        set_from(needs[i].name, needs[i].has_list ? first : other_value(needs[i].row),
                 DPB_FROM_FILE);
        if (needs[i].row->type == DPB_OPT_BOOL && !needs[i].has_list)
            set_from(needs[i].name, "true", DPB_FROM_FILE);
        if (check() != DPB_OK)
            fail_msg("%s with %s: %s", name, needs[i].name, dpb_first_error(NULL));
        assert_int_equal(n_warnings(), 0);
    }
}

static size_t try_rows(const char *section, const struct dpb_option *rows)
{
    size_t n_tried = 0;
    for (const struct dpb_option *row = rows; row && row->name; row++) {
        struct need needs[4];
        char name[128];
        if (!row->needs)
            continue;
        const size_t n = read_needs(row->needs, needs);
        snprintf(name, sizeof name, "%s.%s", section, row->name);
        experiment.config = dpb_config_create();
        expect_unused(name, row, needs, n);
        /* Needs of needs are of no matter here. */
        dpb_config_destroy(experiment.config);
        experiment.config = dpb_config_create();
        expect_used(name, row, needs, n);
        dpb_config_destroy(experiment.config);
        n_tried++;
    }
    return n_tried;
}

TEST(test_core)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    size_t n = 0;
    dpb_log_set_hooks(&silent);
    make_experiment(NULL);
    for (size_t i = 0; i < dpb_settings_n_sections; i++)
        n += try_rows(dpb_settings_sections[i].name, dpb_settings_sections[i].rows);
    assert_in_range(n, 20, 1000);
}

TEST(test_plugins)
{
    struct dpb_plugin_row *rows;
    size_t n_rows, n = 0;
    assert_int_equal(dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, NULL, &rows, &n_rows),
                     DPB_OK);
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].plugin) {
            make_experiment(rows[i].plugin);
            n += try_rows(dpb_plugin_place[rows[i].plugin->kind].section, rows[i].plugin->options);
        }
    free(rows);
    assert_in_range(n, 10, 1000);
}

/* A value that is off, as it is by default, asks for nothing. */
TEST(test_off_needs_nothing)
{
    static const char *const settings[][2] = {
        {"optimizer.nesterov", "no"}, {"checkpoint.every", "0"}, {"checkpoint.resume", "yes"},
        {"run.loss_scale", "0"},      {"checkpoint.at", ""},     {"optimizer.end_rate", "0"},
        {"eval.require_target", "no"}};
    make_experiment(NULL);
    experiment.config = dpb_config_create();
    set_from("optimizer.name", "adagrad", DPB_FROM_FILE);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        set_from(settings[i][0], settings[i][1], DPB_FROM_FILE);
    if (check() != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    dpb_config_destroy(experiment.config);
}

static int set_up(void **state)
{
    char path[4096];
    const char *build = getenv("DPB_BUILD");
    (void)state;
    snprintf(path, sizeof path, "%s/plugins", build ? build : "build");
    return setenv("DPBENCH_PLUGIN_PATH", path, 1);
}

TEST_MAIN(set_up, NULL)
