/* json.c - see json.h. */
#include "base/json.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const json_t *dpb_json_at(const json_t *document, const char *path)
{
    while (document && *path != '\0') {
        size_t length = strcspn(path, ".");
        char key[128];
        if (length >= sizeof key)
            return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        document = json_object_get(document, key);
        path += length + (path[length] == '.');
    }
    return document;
}

double dpb_json_number(const json_t *document, const char *path)
{
    const json_t *value = dpb_json_at(document, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

size_t dpb_json_index(const json_t *document, const char *path)
{
    const double number = dpb_json_number(document, path);
    return number >= 0 && number < 1e15 ? (size_t)number : SIZE_MAX;
}

double dpb_json_item(const json_t *array, size_t i)
{
    return dpb_json_number(json_array_get(array, i), "");
}

double *dpb_json_numbers(const json_t *list, const char *path, size_t *n)
{
    double *numbers = calloc(json_array_size(list) + 1, sizeof *numbers);
    *n = numbers ? json_array_size(list) : 0;
    for (size_t i = 0; i < *n; i++)
        numbers[i] = dpb_json_number(json_array_get(list, i), path);
    return numbers;
}

const char *dpb_json_text(const json_t *document, const char *path, const char *otherwise)
{
    const json_t *value = dpb_json_at(document, path);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

bool dpb_json_is(const json_t *document, const char *path, const char *text)
{
    const char *is = dpb_json_text(document, path, NULL);
    return is && strcmp(is, text) == 0;
}

bool dpb_json_true(const json_t *document, const char *path)
{
    return json_is_true(dpb_json_at(document, path));
}

json_t *dpb_json_find(const json_t *list, const char *path, const json_t *value)
{
    dpb_each_item(list, i, item)
        if (json_equal(dpb_json_at(item, path), value))
            return item;
    return NULL;
}

struct walk {
    char path
        [512 +
         PATH_MAX]; /* holds the longest names of facts; values below longer ones are left out */
    dpb_json_visit *visit;
    void *context;
};

static void walk(struct walk *at, const json_t *a, const json_t *b, size_t length);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void descend(struct walk *at, const char *key, const json_t *a, const json_t *b,
                    size_t length)
{
    int n = snprintf(at->path + length, sizeof at->path - length, ".%s", key);
    if (n > 0 && length + (size_t)n < sizeof at->path)
        walk(at, a, b, length + (size_t)n);
    at->path[length] = '\0';
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static void walk(struct walk *at, const json_t *a, const json_t *b, size_t length)
{
    if (!json_is_object(a) || !json_is_object(b)) {
        if ((a || b) && !json_equal(a, b))
            at->visit(at->context, at->path, a, b);
        return;
    }
    dpb_each_member(a, key, value)
        descend(at, key, value, json_object_get(b, key), length);
    dpb_each_member(b, key, value)
        if (!json_object_get(a, key))
            descend(at, key, NULL, value, length);
}

void dpb_json_differences(const json_t *a, const json_t *b, const char *name, dpb_json_visit *visit,
                          void *context)
{
    struct walk at = {.visit = visit, .context = context};
    snprintf(at.path, sizeof at.path, "%s", name);
    walk(&at, a, b, strlen(at.path));
}

json_t *dpb_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *dpb_json_time(time_t when)
{
    struct tm utc;
    char text[32];
    gmtime_r(&when, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

json_t *dpb_json_string(const char *text)
{
    json_t *string = json_string(text);
    if (string)
        return string;
    char *copy = strdup(text);
    if (!copy)
        return NULL;
    for (char *c = copy; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    string = json_string(copy);
    free(copy);
    return string;
}

void dpb_json_print(const json_t *value, FILE *out)
{
    if (!value)
        fputs("missing", out);
    else
        json_dumpf(value, out, JSON_ENCODE_ANY | JSON_COMPACT);
}

void dpb_json_print_cell(const json_t *document, const char *path, double unit, int width,
                         int digits, FILE *out)
{
    const double value = dpb_json_number(document, path);
    if (isnan(value))
        fprintf(out, " %*s", width - 1, "-");
    else
        fprintf(out, " %*.*f", width - 1, digits, value / unit);
}

static json_t *printable_string(const json_t *string)
{
    const size_t length = json_string_length(string), size = 4 * length + 5;
    char *text = malloc(size);
    if (!text)
        return NULL;
    const size_t used = dpb_escape(json_string_value(string), length, text, size);
    json_t *made =
        used == length ? json_incref((json_t *)(uintptr_t)string) : json_stringn(text, used);
    free(text);
    return made;
}

json_t *dpb_json_line(const char *text)
{
    char *line = malloc(2 * strlen(text) + 1);
    size_t n = 0;
    for (; line && *text != '\0'; text++) {
        if (text[strspn(text, "\r\t ")] != '\n') {
            line[n++] = *text;
            continue;
        }
        text += strspn(text, "\n\r\t ") - 1;
        if (n == 0 || text[1] == '\0')
            continue;
        if (line[n - 1] != ':')
            line[n++] = ';';
        line[n++] = ' ';
    }
    json_t *made = line ? json_stringn(line, n) : NULL;
    free(line);
    return made;
}

static json_t *printable_member(const char *key, const json_t *value)
{
    const char *text = json_string_value(value);
    if (strcmp(key, "error") != 0 || !text || !strchr(text, '\n'))
        return dpb_json_printable(value);
    json_t *line = dpb_json_line(text), *made = dpb_json_printable(line);
    json_decref(line);
    return made;
}

/* A value with nothing to escape is shared, not copied: a document may have thousands of runs. */
static json_t *made_or_same(json_t *made, bool same, const json_t *value)
{
    if (!made || !same)
        return made;
    json_decref(made);
    return json_incref((json_t *)(uintptr_t)value);
}

static json_t *printable_object(const json_t *object)
{
    json_t *made = json_object();
    bool same = true;
    for (void *i = json_object_iter((json_t *)(uintptr_t)object); made && i;
         i = json_object_iter_next((json_t *)(uintptr_t)object, i)) {
        const char *key = json_object_iter_key(i);
        json_t *name = json_stringn_nocheck(key, strlen(key)), *value = json_object_iter_value(i);
        json_t *clean = name ? printable_string(name) : NULL,
               *member = printable_member(key, value);
        same &= clean == name && member == value;
        if (!clean || json_object_set_new(made, json_string_value(clean), member) != 0) {
            json_decref(made);
            made = NULL;
        }
        json_decref(name);
        json_decref(clean);
    }
    return made_or_same(made, same, object);
}

static json_t *printable_array(const json_t *array)
{
    json_t *made = json_array();
    bool same = true;
    for (size_t i = 0; made && i < json_array_size(array); i++) {
        json_t *value = json_array_get(array, i), *item = dpb_json_printable(value);
        same &= item == value;
        if (json_array_append_new(made, item) != 0) {
            json_decref(made);
            made = NULL;
        }
    }
    return made_or_same(made, same, array);
}

json_t *dpb_json_printable(const json_t *document)
{
    return json_is_string(document)   ? printable_string(document)
           : json_is_object(document) ? printable_object(document)
           : json_is_array(document)  ? printable_array(document)
                                      : json_incref((json_t *)(uintptr_t)document);
}

json_t *dpb_json_file(const char *name, size_t length)
{
    char *copy = strndup(name, length);
    json_t *string = copy ? dpb_json_string(copy) : NULL, *made = dpb_json_printable(string);
    json_decref(string);
    free(copy);
    return made;
}

char *dpb_json_printed(const json_t *document, void (*print)(const json_t *document, FILE *out))
{
    char *text = NULL;
    size_t length;
    FILE *memory = open_memstream(&text, &length);
    if (!memory)
        return NULL;
    print(document, memory);
    fclose(memory);
    return text;
}
