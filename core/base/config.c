/* config.c - settings from .ini files, from the command line and from JSON. */
#include "base/config.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/each.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/text.h"

enum {
    LINE_BYTES = 8192, /* of a file, without its comment: a path and its key */
    MESSAGE_BYTES = 4096,
    MAX_SETTINGS = 4096, /* more than there are options: each is looked for among the others */
};

/* ---- the container ------------------------------------------------------------------------- */

struct dpb_config *dpb_config_create(void)
{
    struct dpb_config *config = calloc(1, sizeof *config);
    if (!config)
        dpb_fail(DPB_NO_MEMORY, "out of memory for the configuration");
    return config;
}

static void setting_clear(struct dpb_setting *setting)
{
    free(setting->section);
    free(setting->key);
    free(setting->value);
    free(setting->origin);
}

void dpb_config_destroy(struct dpb_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->n_settings; i++)
        setting_clear(&config->settings[i]);
    free(config->settings);
    free(config);
}

static struct dpb_setting *find(const struct dpb_config *config, const char *section,
                                const char *key)
{
    for (size_t i = 0; i < config->n_settings; i++) {
        struct dpb_setting *setting = &config->settings[i];
        if (strcmp(setting->section, section) == 0 && strcmp(setting->key, key) == 0)
            return setting;
    }
    return NULL;
}

const struct dpb_setting *dpb_config_get(const struct dpb_config *config, const char *section,
                                         const char *key)
{
    return find(config, section, key);
}

unsigned long dpb_config_count(const struct dpb_config *config, const char *section,
                               const char *key, unsigned long none)
{
    const struct dpb_setting *setting = find(config, section, key);
    return setting ? strtoul(setting->value, NULL, 10) : none;
}

const char *dpb_config_origin(const struct dpb_config *config, const char *section, const char *key)
{
    const struct dpb_setting *setting = find(config, section, key);
    return setting ? setting->origin : "default";
}

dpb_status dpb_config_fail(const struct dpb_config *config, dpb_status status, const char *section,
                           const char *key, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    DPB_PRINT_ARGUMENTS(message, sizeof message, format);
    return dpb_fail(status, "%s: %s", dpb_config_origin(config, section, key), message);
}

static bool is_utf8(const char *text)
{
    json_t *json = json_string(text);
    json_decref(json);
    return json != NULL;
}

/* Escape sequences and line ends would reach the terminal with the first message that quotes them:
 * bytes below a blank but for tabs, DEL, and U+0080 to U+009F. */
static bool has_control(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    for (; *c != '\0'; c++)
        if ((*c < ' ' && *c != '\t') || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return true;
    return false;
}

/* Copies all strings before any is freed: the caller may pass strings of the old setting. */
static dpb_status put(struct dpb_config *config, struct dpb_setting setting)
{
    if (!is_utf8(setting.section) || !is_utf8(setting.key) || !is_utf8(setting.value))
        return dpb_fail(DPB_USAGE, "%s: the text of %s.%s is not UTF-8", setting.origin,
                        is_utf8(setting.section) ? setting.section : "?",
                        is_utf8(setting.key) ? setting.key : "?");
    if (!is_utf8(setting.origin))
        return dpb_fail(DPB_USAGE, "the path of a configuration is not UTF-8: %s", setting.origin);
    if (has_control(setting.section) || has_control(setting.key) || has_control(setting.value) ||
        has_control(setting.origin))
        return dpb_fail(DPB_USAGE, "%s: a control character: this is not plain text",
                        has_control(setting.origin) ? "the configuration" : setting.origin);
    struct dpb_setting *old = find(config, setting.section, setting.key);
    if (!old && config->n_settings == MAX_SETTINGS)
        return dpb_fail(DPB_USAGE, "%s: more than %d settings", setting.origin, MAX_SETTINGS);
    setting.section = strdup(setting.section);
    setting.key = strdup(setting.key);
    setting.value = strdup(setting.value);
    setting.origin = strdup(setting.origin);
    if (!setting.section || !setting.key || !setting.value || !setting.origin)
        goto err_strings;
    if (old) {
        setting_clear(old);
        *old = setting;
        return DPB_OK;
    }
    struct dpb_setting *grown =
        realloc(config->settings, (config->n_settings + 1) * sizeof *config->settings);
    if (!grown)
        goto err_strings;
    config->settings = grown;
    config->settings[config->n_settings++] = setting;
    return DPB_OK;

err_strings:
    setting_clear(&setting);
    return dpb_fail(DPB_NO_MEMORY, "out of memory for the configuration");
}

dpb_status dpb_config_set(struct dpb_config *config, const char *section, const char *key,
                          const char *value, const char *origin)
{
    /* put() copies before it writes, so dropping const is safe. */
    struct dpb_setting setting = {(char *)section, (char *)key, (char *)value,
                                  (char *)origin,  false,       DPB_FROM_COMMAND};
    return put(config, setting);
}

void dpb_config_mark(struct dpb_config *config, const char *section, const char *key,
                     dpb_setting_from from)
{
    struct dpb_setting *setting = find(config, section, key);
    if (setting)
        setting->from = from;
}

void dpb_config_remove(struct dpb_config *config, const char *section, const char *key)
{
    struct dpb_setting *setting = find(config, section, key);
    if (!setting)
        return;
    setting_clear(setting);
    size_t after = config->n_settings - 1 - (size_t)(setting - config->settings);
    memmove(setting, setting + 1, after * sizeof *setting);
    config->n_settings--;
}

static dpb_status put_all(struct dpb_config *config, const struct dpb_config *from)
{
    for (size_t i = 0; i < from->n_settings; i++)
        DPB_TRY(put(config, from->settings[i]));
    return DPB_OK;
}

struct dpb_config *dpb_config_copy(const struct dpb_config *config)
{
    struct dpb_config *copy = dpb_config_create();
    if (copy && put_all(copy, config) != DPB_OK) {
        dpb_config_destroy(copy);
        return NULL;
    }
    return copy;
}

/* ---- .ini files ---------------------------------------------------------------------------- */

struct reader {
    struct dpb_lines lines;
    char *section; /* @owned. NULL: before the first */
    struct dpb_config *found;
};

DPB_PRINTF(2, 3) static void refuse(struct reader *reader, const char *format, ...)
{
    char reason[1024];
    DPB_PRINT_ARGUMENTS(reason, sizeof reason, format);
    reader->lines.status =
        dpb_fail(DPB_USAGE, "%s:%d: %s", reader->lines.path, reader->lines.number, reason);
}

static void take_section(struct reader *reader, char *text)
{
    char *close = strchr(text, ']');
    const char *rest = close ? close + 1 + strspn(close + 1, DPB_BLANKS) : "";
    if (!close)
        refuse(reader, "a section's name without its ']'");
    else if (close == text + 1)
        refuse(reader, "a section without a name");
    else if (*rest != '\0' && *rest != ';' && *rest != '#')
        refuse(reader, "'%s' after the section's name: a setting takes a line of its own", rest);
    if (reader->lines.status != DPB_OK)
        return;
    *close = '\0';
    free(reader->section);
    reader->section = strdup(text + 1);
    reader->lines.status = dpb_allocated(reader->section);
}

static dpb_status set_at(struct reader *reader, const char *key, const char *value)
{
    char *origin;
    if (asprintf(&origin, "%s:%d", reader->lines.path, reader->lines.number) < 0)
        return dpb_fail(DPB_NO_MEMORY, "out of memory for the configuration");
    const dpb_status status = dpb_config_set(reader->found, reader->section, key, value, origin);
    dpb_config_mark(reader->found, reader->section, key, DPB_FROM_FILE);
    free(origin);
    return status;
}

static void take_setting(struct reader *reader, char *text)
{
    char *equals = text + strcspn(text, "=:");
    if (*equals != '=') {
        refuse(reader, "'%s' is not KEY = VALUE (a value does not go on in the next line)", text);
        return;
    }
    const char *key = dpb_trim(text, equals), *value = equals + 1 + strspn(equals + 1, DPB_BLANKS);
    const struct dpb_setting *before =
        reader->section ? find(reader->found, reader->section, key) : NULL;
    if (*key == '\0')
        refuse(reader, "a value without a key");
    else if (!reader->section)
        refuse(reader, "'%s' stands before the first [section]", key);
    else if (before)
        refuse(reader, "'%s' of [%s] was given before: %s", key, reader->section, before->origin);
    else
        reader->lines.status = set_at(reader, key, value);
}

dpb_status dpb_config_read(struct dpb_config *config, const char *path)
{
    char text[LINE_BYTES];
    struct reader reader = {.lines = dpb_lines_open(path), .found = dpb_config_create()};
    if (!reader.found)
        reader.lines.status = DPB_NO_MEMORY;
    while (dpb_lines_next(&reader.lines, text, sizeof text))
        if (text[0] == '[')
            take_section(&reader, text);
        else
            take_setting(&reader, text);
    dpb_status status = reader.lines.status;
    DPB_THEN(status, put_all(config, reader.found));
    dpb_config_destroy(reader.found);
    free(reader.section);
    dpb_lines_close(&reader.lines);
    return status;
}

/* ---- the command line ---------------------------------------------------------------------- */

dpb_status dpb_config_assign(struct dpb_config *config, const char *assignment, const char *origin)
{
    const char *equals = strchr(assignment, '=');
    const char *dot = equals ? memchr(assignment, '.', (size_t)(equals - assignment)) : NULL;
    if (!dot)
        return dpb_fail(DPB_USAGE, "%s: '%s' is not SECTION.KEY=VALUE", origin, assignment);
    char *copy = strdup(assignment);
    DPB_TRY(dpb_allocated(copy));
    char *key_end = copy + (equals - assignment), *section_end = copy + (dot - assignment);
    char *value = dpb_trim(key_end + 1, copy + strlen(copy));
    char *key = dpb_trim(section_end + 1, key_end);
    char *section = dpb_trim(copy, section_end);
    dpb_status status;
    if (*section == '\0' || *key == '\0')
        status = dpb_fail(DPB_USAGE, "%s: '%s' is not SECTION.KEY=VALUE", origin, assignment);
    else
        status = dpb_config_set(config, section, key, value, origin);
    free(copy);
    return status;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

json_t *dpb_config_to_json(const struct dpb_config *config)
{
    json_t *root = json_object();
    for (size_t i = 0; root && i < config->n_settings; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        json_t *section = json_object_get(root, setting->section);
        if (!section) {
            json_object_set_new(root, setting->section, json_object());
            section = json_object_get(root, setting->section);
        }
        json_t *value = setting->base_units ? json_loads(setting->value, JSON_DECODE_ANY, NULL)
                                            : json_string(setting->value);
        json_t *entry = json_pack("{s:o,s:s}", "value", value, "origin", setting->origin);
        if (json_object_set_new(section, setting->key, entry) != 0) {
            json_decref(root);
            root = NULL;
        }
    }
    if (!root)
        dpb_fail(DPB_NO_MEMORY, "out of memory for the configuration");
    return root;
}

const char *dpb_config_text(const json_t *value, char *buffer, size_t capacity)
{
    if (json_is_string(value))
        return strlen(json_string_value(value)) == json_string_length(value)
                   ? json_string_value(value)
                   : NULL;
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value)) {
        snprintf(buffer, capacity, "%lld", (long long)json_integer_value(value));
        return buffer;
    }
    if (!json_is_real(value))
        return NULL;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buffer, capacity, "%.*g", digits, json_real_value(value));
        if (strtod(buffer, NULL) == json_real_value(value))
            break;
    }
    return buffer;
}

static dpb_status put_json(struct dpb_config *config, const char *section, const char *key,
                           json_t *entry, const char *what)
{
    char buffer[64];
    json_t *value = json_object_get(entry, "value");
    const char *origin = json_string_value(json_object_get(entry, "origin"));
    if (!origin)
        origin = what;
    if (strcmp(origin, "default") == 0 || strcmp(origin, "derived") == 0 || json_is_null(value))
        return DPB_OK;
    const char *text = dpb_config_text(value, buffer, sizeof buffer);
    if (!text)
        return dpb_fail(DPB_USAGE, "%s: %s.%s has no value that is a text, a number or a boolean",
                        what, section, key);
    struct dpb_setting setting = {(char *)section, (char *)key,           (char *)text,
                                  (char *)origin,  json_is_number(value), DPB_FROM_DOCUMENT};
    return put(config, setting);
}

static dpb_status read_json(struct dpb_config *config, json_t *root, const char *what)
{
    if (!json_is_object(root))
        return dpb_fail(DPB_USAGE, "%s: the configuration is not a JSON object", what);
    dpb_each_member(root, section, entries) {
        if (!json_is_object(entries))
            return dpb_fail(DPB_USAGE, "%s: section '%s' is not a JSON object", what, section);
        dpb_each_member(entries, key, entry)
            DPB_TRY(put_json(config, section, key, entry, what));
    }
    return DPB_OK;
}

dpb_status dpb_config_from_json(struct dpb_config *config, const json_t *json, const char *what)
{
    struct dpb_config *found = dpb_config_create();
    if (!found)
        return DPB_NO_MEMORY;
    /* jansson's iterators take no const; the JSON is only read. */
    dpb_status status = read_json(found, (json_t *)json, what);
    DPB_THEN(status, put_all(config, found));
    dpb_config_destroy(found);
    return status;
}
