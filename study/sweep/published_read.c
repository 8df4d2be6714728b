/* published_read.c - see published_read.h. */
#include "study/sweep/published_read.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "study/sweep/sweep_cells.h"

enum { MOST_NAMED = 16 };

/* A line of [published]. */
struct line {
    const struct dpb_setting *setting;
    char *key, *value; /* @owned copies, which the texts below are parts of */
    struct named {
        const char *section, *key, *value;
    } named[MOST_NAMED];
    size_t n_named;
    double figure;
    const char *source, *hardware;
};

static dpb_status refuse_key(const struct line *line)
{
    return dpb_fail(DPB_USAGE,
                    "%s: [published]: '%s' names no cell: write SECTION.KEY VALUE, for up to %d "
                    "settings, before the =",
                    line->setting->origin, line->setting->key, MOST_NAMED);
}

static dpb_status read_key(struct line *line)
{
    char *state = NULL;
    for (char *word = strtok_r(line->key, " \t", &state); word;
         word = strtok_r(NULL, " \t", &state)) {
        char *dot = strchr(word, '.');
        const char *value = strtok_r(NULL, " \t", &state);
        if (!dot || !value || line->n_named == MOST_NAMED)
            return refuse_key(line);
        *dot = '\0';
        line->named[line->n_named++] = (struct named){word, dot + 1, value};
    }
    return line->n_named > 0 ? DPB_OK : refuse_key(line);
}

static char *trimmed(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text + strspn(text, " \t");
}

static dpb_status read_value(struct line *line)
{
    char *rest = line->value;
    char *figure = strsep(&rest, ","), *source = strsep(&rest, ",");
    line->source = source ? trimmed(source) : "";
    line->hardware = rest ? trimmed(rest) : "";
    if (line->source[0] == '\0' || line->hardware[0] == '\0')
        return dpb_fail(DPB_USAGE, "%s: [published]: '%s' is not FIGURE, SOURCE, HARDWARE",
                        line->setting->origin, line->setting->value);
    if (dpb_parse_real(trimmed(figure), &line->figure) != DPB_PARSED || !(line->figure > 0) ||
        !isfinite(line->figure))
        return dpb_fail(DPB_USAGE, "%s: [published]: the figure '%s' is no number above 0",
                        line->setting->origin, trimmed(figure));
    return DPB_OK;
}

/* Equal, but for blanks in the sweep's value. */
static bool is_value(const char *value, const char *word)
{
    for (; *value != '\0'; value++)
        if (!isspace((unsigned char)*value) && *word++ != *value)
            return false;
    return *word == '\0';
}

static bool has_setting(const struct dpb_sweep *sweep, size_t cell, const struct named *named)
{
    return is_value(dpb_sweep_setting(sweep, cell, named->section, named->key), named->value);
}

static bool has_all(const struct dpb_sweep *sweep, size_t cell, const struct line *line)
{
    bool all = true;
    for (size_t i = 0; i < line->n_named && all; i++)
        all = has_setting(sweep, cell, &line->named[i]);
    return all;
}

static bool is_late(const char *origin)
{
    return strcmp(origin, DPB_COMMAND_LINE) == 0;
}

/* Whether the command line gave the setting, or another length of the run, or an axis of lengths,
 * in its place. */
static bool is_set_late(const struct dpb_config *config, const struct named *named)
{
    bool late = is_late(dpb_config_origin(config, named->section, named->key));
    for (size_t i = 0; dpb_run_lengths[i] && dpb_is_run_length(named->section, named->key); i++) {
        char axis[64];
        snprintf(axis, sizeof axis, "run.%s", dpb_run_lengths[i]);
        late |= is_late(dpb_config_origin(config, "run", dpb_run_lengths[i])) ||
                is_late(dpb_config_origin(config, "sweep", axis));
    }
    return late;
}

/* No cell has all settings that the line names: OK if the command line made it so. */
static dpb_status refuse_unknown(const struct dpb_config *config, const struct dpb_sweep *sweep,
                                 const struct line *line)
{
    bool late = is_late(dpb_config_origin(config, "sweep", "when")) ||
                is_late(dpb_config_origin(config, "sweep", "over"));
    const struct named *unknown = NULL;
    for (size_t i = 0; i < line->n_named; i++) {
        const struct named *named = &line->named[i];
        const struct dpb_sweep_axis *axis = dpb_sweep_axis_of(sweep, named->section, named->key);
        bool known = false;
        late |= axis ? is_late(axis->origin) : is_set_late(config, named);
        for (size_t cell = 0; cell < sweep->n_cells && !known; cell++)
            known = has_setting(sweep, cell, named);
        unknown = known || unknown ? unknown : named;
    }
    if (late)
        return DPB_OK;
    if (!unknown)
        return dpb_fail(DPB_USAGE, "%s: [published]: no cell of [sweep] has all of '%s'",
                        line->setting->origin, line->setting->key);
    return dpb_fail(DPB_USAGE,
                    "%s: [published]: no cell of [sweep] has %s.%s = %s; a default does not count",
                    line->setting->origin, unknown->section, unknown->key, unknown->value);
}

/* Several cells have all settings that the line names: OK if the command line made it so. */
static dpb_status refuse_several(const struct dpb_sweep *sweep, const struct line *line, size_t n)
{
    const struct dpb_sweep_axis *missing = NULL;
    for (size_t i = 0; i < sweep->n_axes; i++) {
        const struct dpb_sweep_axis *axis = &sweep->axes[i];
        bool named = false;
        for (size_t k = 0; k < line->n_named; k++)
            named |= strcmp(line->named[k].section, axis->section) == 0 &&
                     strcmp(line->named[k].key, axis->key) == 0;
        if (!named && is_late(axis->origin))
            return DPB_OK;
        missing = named || missing || axis->n_values == 1 ? missing : axis;
    }
    if (!missing)
        return dpb_fail(DPB_USAGE,
                        "%s: [published]: '%s' is %zu cells of [sweep], whose values differ in "
                        "blanks alone",
                        line->setting->origin, line->setting->key, n);
    return dpb_fail(DPB_USAGE, "%s: [published]: '%s' is %zu cells of [sweep]: name %s.%s, too",
                    line->setting->origin, line->setting->key, n, missing->section, missing->key);
}

static dpb_status add_line(const struct dpb_config *config, struct dpb_sweep *sweep,
                           struct line *line)
{
    size_t n = 0, found = 0;
    DPB_TRY(read_key(line));
    DPB_TRY(read_value(line));
    for (size_t cell = 0; cell < sweep->n_cells; cell++)
        if (has_all(sweep, cell, line)) {
            found = cell;
            n++;
        }
    if (n != 1)
        return n == 0 ? refuse_unknown(config, sweep, line) : refuse_several(sweep, line, n);
    dpb_each_item(sweep->published, i, other)
        if (dpb_json_number(other, "cell_index") == (double)found)
            return dpb_fail(DPB_USAGE, "%s: [published]: the cell '%s' has a figure already, %g",
                            line->setting->origin, line->setting->key,
                            dpb_json_number(other, "figure"));
    return dpb_allocated(json_array_append_new(
                             sweep->published,
                             json_pack("{s:I, s:o, s:f, s:o, s:o}", "cell_index", (json_int_t)found,
                                       "cell", dpb_sweep_cell(sweep, found), "figure", line->figure,
                                       "source", dpb_json_string(line->source), "hardware",
                                       dpb_json_string(line->hardware))) == 0);
}

dpb_status dpb_published_read(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const char *section = dpb_studies[DPB_STUDY_PUBLISHED].name;
    dpb_status status = DPB_OK;
    sweep->published = json_array();
    for (size_t i = 0; i < config->n_settings && status == DPB_OK; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        if (strcmp(setting->section, section) != 0)
            continue;
        struct line line = {
            .setting = setting, .key = strdup(setting->key), .value = strdup(setting->value)};
        status = dpb_allocated(line.key && line.value && sweep->published);
        DPB_THEN(status, add_line(config, sweep, &line));
        free(line.key);
        free(line.value);
    }
    if (json_array_size(sweep->published) == 0) {
        json_decref(sweep->published);
        sweep->published = NULL;
    }
    return status;
}
