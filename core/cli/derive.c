/* derive.c - see derive.h. */
#include "cli/derive.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/settings.h"
#include "base/text.h"
#include "plan/fit.h"
#include "plan/host.h"
#include "plugin/plugins.h"

enum { MOST_CHAIN = 16, TEXT = 64 };
static const char mark[] = DPB_DERIVED_MARK " ";

/* One evaluation. The facts are those of two experiments: of the settings of model, data and
 * device, and with those of [run] that a batch follows from. */
struct deriving {
    const struct dpb_config *config;
    bool comm;
    const char *place;            /* of the expression */
    char chain[MOST_CHAIN][TEXT]; /* of the names whose values are looked for */
    size_t n;
    struct dpb_experiment *facts[2]; /* @owned; NULL: not asked for yet */
};

/* ---- options ------------------------------------------------------------------------------- */

/* The row of SECTION.KEY: core's, or that of the section's plugins; NULL: there is none. */
static dpb_status find_row(const struct deriving *deriving, const char *section, const char *key,
                           const struct dpb_option **row)
{
    const uint32_t kinds = dpb_plugin_kinds_in(section);
    *row = dpb_options_find(dpb_settings_rows(section), key);
    for (uint32_t kind = 0; kind < DPB_PLUGIN_KINDS && !*row; kind++) {
        const char *name = dpb_plugin_place[kind].key;
        const struct dpb_setting *given = dpb_config_get(deriving->config, section, name);
        const struct dpb_plugin *plugin;
        if (!(kinds & 1u << kind) || (kind == DPB_PLUGIN_CODEC && !given))
            continue;
        name = given ? given->value : dpb_options_find(dpb_settings_rows(section), name)->def;
        if (strcmp(name, "none") == 0)
            continue;
        DPB_TRY(dpb_plugin_load((dpb_plugin_kind)kind, name, given ? given->origin : "default",
                                deriving->comm ? dpb_comm_host() : &dpb_host, &plugin));
        *row = dpb_options_find(plugin->options, key);
    }
    return DPB_OK;
}

static bool is_number(const struct dpb_option *row)
{
    return row && (row->type == DPB_OPT_INT || row->type == DPB_OPT_REAL ||
                   row->type == DPB_OPT_SIZE || row->type == DPB_OPT_TIME);
}

/* The units of the option, and how many nanoseconds its bare numbers are. */
static struct dpb_amount unit_of(const struct dpb_option *row)
{
    const bool size = row->type == DPB_OPT_SIZE, time = row->type == DPB_OPT_TIME;
    const bool rate = size && row->unit && strcmp(row->unit, "bytes/s") == 0;
    const struct dpb_unit *unit = dpb_time_units;
    while (time && row->unit && unit->name && strcmp(unit->name, row->unit) != 0)
        unit++;
    return (struct dpb_amount){time ? (double)unit->factor : 1, size, rate ? -1 : time};
}

static const char *name_of(const struct dpb_amount *value)
{
    return value->bytes == 0 && value->seconds == 0    ? "a number"
           : value->bytes == 1 && value->seconds == 0  ? "a size"
           : value->bytes == 0 && value->seconds == 1  ? "a time"
           : value->bytes == 1 && value->seconds == -1 ? "a rate"
                                                       : "in units that no option has";
}

/* As the option reads it. */
static dpb_status to_text(const struct dpb_option *row, const char *place, const char *expression,
                          const struct dpb_amount *value, char text[TEXT])
{
    const struct dpb_amount unit = unit_of(row);
    const bool bare = value->bytes == 0 && value->seconds == 0;
    const bool time = row->type == DPB_OPT_TIME, real = row->type == DPB_OPT_REAL;
    double number = value->value;
    if (!(bare && (!time || row->unit)) &&
        (value->bytes != unit.bytes || value->seconds != unit.seconds))
        return dpb_fail(DPB_USAGE, "%s: '%s' is %s; the option takes %s", place, expression,
                        name_of(value), name_of(&unit));
    if (real) {
        json_t *json = json_real(number);
        dpb_config_text(json, text, TEXT);
        json_decref(json);
        return DPB_OK;
    }
    if (time)
        number = round(number * (bare ? unit.value : 1e9));
    else if (fabs(number - round(number)) > 1e-9 * fmax(1, fabs(number)))
        return dpb_fail(DPB_USAGE,
                        "%s: '%s' is %.10g, no whole number%s; take floor(), round() "
                        "or another value",
                        place, expression, number, unit.bytes ? " of bytes" : "");
    if (!(fabs(number) < 0x1p62))
        return dpb_fail(DPB_USAGE, "%s: '%s' is %g, which is too large", place, expression, number);
    snprintf(text, TEXT, "%.0f%s", number, time ? " ns" : "");
    return DPB_OK;
}

/* ---- names --------------------------------------------------------------------------------- */

static const char *const facts[] = {"parameters", "samples", "classes", "steps_per_epoch", NULL};

static bool is_fact(const char *name)
{
    return dpb_text_lists("parameters,samples,classes,steps_per_epoch", ",", name, strlen(name));
}

bool dpb_derive_is(const struct dpb_setting *setting)
{
    return !setting->base_units && (dpb_expression_is(setting->value) || is_fact(setting->value));
}

static dpb_status settle(struct deriving *deriving, const struct dpb_option *row,
                         const struct dpb_setting *setting, char text[TEXT]);

static dpb_status add_setting(struct deriving *deriving, const struct dpb_setting *setting,
                              struct dpb_config *config)
{
    const struct dpb_option *row = NULL;
    char text[TEXT];
    if (dpb_derive_is(setting))
        DPB_TRY(find_row(deriving, setting->section, setting->key, &row));
    if (is_number(row))
        DPB_TRY(settle(deriving, row, setting, text));
    DPB_TRY(dpb_config_set(config, setting->section, setting->key,
                           is_number(row) ? text : setting->value, setting->origin));
    dpb_config_mark(config, setting->section, setting->key, setting->from);
    return DPB_OK;
}

/* Of a run of these settings alone. */
static dpb_status make_facts(struct deriving *deriving, bool run, struct dpb_experiment **made)
{
    static const char keys[] = "batch,global_batch,workers,learners,accumulate";
    struct dpb_config *config = dpb_config_create();
    dpb_status status = dpb_allocated(config);
    for (size_t i = 0; i < deriving->config->n_settings && status == DPB_OK; i++) {
        const struct dpb_setting *s = &deriving->config->settings[i];
        if (run && strcmp(s->section, "run") == 0
                ? dpb_text_lists(keys, ",", s->key, strlen(s->key))
                : dpb_text_lists("model,data,device", ",", s->section, strlen(s->section)))
            status = add_setting(deriving, s, config);
    }
    DPB_THEN(status, dpb_config_set(config, "run", "steps", "1", "derived"));
    if (deriving->comm)
        DPB_THEN(status, dpb_config_set(config, "run", "mode", "comm", DPB_COMM_ORIGIN));
    DPB_THEN(status, dpb_experiment_create(config, made));
    dpb_config_destroy(config);
    return status;
}

/* `name`: a fact, run.batch or run.global_batch. */
static dpb_status fact_of(struct deriving *deriving, const char *name, double *value)
{
    const bool run = dpb_begins_with(name, "run.") || strcmp(name, facts[3]) == 0;
    struct dpb_experiment **made = &deriving->facts[run];
    if (!*made)
        DPB_TRY(make_facts(deriving, run, made));
    if (is_fact(name) && !(*made)->graph)
        DPB_TRY(dpb_fit_build(*made, (*made)->n_workers, true));
    *value = strcmp(name, facts[0]) == 0      ? (double)(*made)->graph->n_parameters
             : strcmp(name, facts[1]) == 0    ? (double)(*made)->data_info.n_samples[DPB_TRAIN]
             : strcmp(name, facts[2]) == 0    ? (double)(*made)->data_info.nclass
             : strcmp(name, facts[3]) == 0    ? (double)(*made)->steps_per_epoch
             : strcmp(name, "run.batch") == 0 ? (double)(*made)->batch
                                              : (double)(*made)->global_batch;
    return DPB_OK;
}

static dpb_status option_of(struct deriving *deriving, const char *name, struct dpb_amount *value)
{
    const char *dot = strchr(name, '.');
    const struct dpb_option *row = NULL;
    char section[TEXT] = "", text[TEXT];
    json_t *json = NULL;
    if (dot)
        snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    if (dot)
        DPB_TRY(find_row(deriving, section, dot + 1, &row));
    if (!is_number(row))
        return dpb_fail(DPB_USAGE,
                        "%s: '%s' is no number here: names are SECTION.KEY of numeric options, "
                        "parameters, samples, classes and steps_per_epoch",
                        deriving->place, name);
    const struct dpb_setting *given = dpb_config_get(deriving->config, section, row->name);
    if (!given && (strcmp(name, "run.batch") == 0 || strcmp(name, "run.global_batch") == 0))
        return fact_of(deriving, name, &value->value);
    if (!given && !row->def)
        return dpb_fail(DPB_USAGE, "%s: %s has no value here: set it", deriving->place, name);
    struct dpb_setting setting = {section, (char *)row->name, (char *)row->def, "default",
                                  false,   DPB_FROM_DOCUMENT};
    if (given)
        setting = *given;
    if (dpb_derive_is(&setting)) {
        DPB_TRY(settle(deriving, row, &setting, text));
        setting.value = text;
    }
    DPB_TRY(dpb_option_value(row, &setting, &json)); /* sizes in bytes, times in seconds */
    *value = unit_of(row);
    value->value = json_number_value(json);
    json_decref(json);
    return DPB_OK;
}

static dpb_status value_of(void *context, const char *name, struct dpb_amount *value)
{
    struct deriving *deriving = context;
    *value = (struct dpb_amount){0};
    for (size_t i = 0; i < deriving->n; i++)
        if (strcmp(deriving->chain[i], name) == 0)
            return dpb_fail(DPB_USAGE, "%s: %s depends on itself", deriving->place, name);
    if (deriving->n == MOST_CHAIN)
        return dpb_fail(DPB_USAGE, "%s: more than %d values depend on each other", deriving->place,
                        MOST_CHAIN);
    snprintf(deriving->chain[deriving->n++], TEXT, "%s", name);
    dpb_status status =
        is_fact(name) ? fact_of(deriving, name, &value->value) : option_of(deriving, name, value);
    deriving->n--;
    return status;
}

static dpb_status evaluate(struct deriving *deriving, const char *text, const char *place,
                           struct dpb_amount *value)
{
    const char *before = deriving->place;
    deriving->place = place;
    dpb_status status = dpb_expression(text, place, value_of, deriving, value);
    deriving->place = before;
    return status;
}

/* The text of the setting's value. */
static dpb_status settle(struct deriving *deriving, const struct dpb_option *row,
                         const struct dpb_setting *setting, char text[TEXT])
{
    char place[512];
    struct dpb_amount value;
    snprintf(place, sizeof place, "%s: %s.%s", setting->origin, setting->section, setting->key);
    DPB_TRY(evaluate(deriving, setting->value, place, &value));
    return to_text(row, place, setting->value, &value, text);
}

static void end(struct deriving *deriving)
{
    for (size_t i = 0; i < 2; i++)
        dpb_experiment_destroy(deriving->facts[i]);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static dpb_status derive_setting(struct deriving *deriving, size_t i, struct dpb_config *config)
{
    const struct dpb_setting *setting = &config->settings[i];
    const dpb_setting_from from = setting->from;
    const struct dpb_option *row;
    char text[TEXT], origin[1024];
    DPB_TRY(find_row(deriving, setting->section, setting->key, &row));
    if (!is_number(row))
        return DPB_OK;
    snprintf(deriving->chain[0], TEXT, "%s.%s", setting->section, setting->key);
    deriving->n = 1;
    DPB_TRY(settle(deriving, row, setting, text));
    snprintf(origin, sizeof origin, "%s%s%s)", setting->origin, mark, setting->value);
    DPB_TRY(dpb_config_set(config, setting->section, setting->key, text, origin));
    config->settings[i].from = from;
    return DPB_OK;
}

dpb_status dpb_derive(struct dpb_config *config, bool comm)
{
    struct deriving deriving = {.config = config, .comm = comm};
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < config->n_settings && status == DPB_OK; i++)
        if (dpb_derive_is(&config->settings[i]))
            status = derive_setting(&deriving, i, config);
    end(&deriving);
    return status;
}

dpb_status dpb_derive_undo(struct dpb_config *config)
{
    for (size_t i = 0; i < config->n_settings; i++) {
        struct dpb_setting *setting = &config->settings[i];
        char *at = strstr(setting->origin, mark), expression[1024];
        const size_t length = at ? strlen(at + sizeof mark - 1) : 0;
        if (length < 2 || length > sizeof expression)
            continue;
        snprintf(expression, sizeof expression, "%.*s", (int)length - 1, at + sizeof mark - 1);
        *at = '\0';
        DPB_TRY(
            dpb_config_set(config, setting->section, setting->key, expression, setting->origin));
    }
    return DPB_OK;
}

dpb_status dpb_derive_value(const struct dpb_config *config, const char *text, const char *place,
                            struct dpb_amount *value)
{
    struct deriving deriving = {.config = config};
    const dpb_status status = evaluate(&deriving, text, place, value);
    end(&deriving);
    return status;
}
